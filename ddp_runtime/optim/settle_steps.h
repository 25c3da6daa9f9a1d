// SPDX-License-Identifier: Apache-2.0
// Takes back what the host has noted for steps that the device skipped: see Note [Skipped steps].
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

#include "ddp_runtime/optim/methods.h"
#include "ddp_runtime/optim/skipped_steps.h"

namespace ddp::optim {

// Takes back the step unsettled[index] if it was skipped. Its parts are then forgotten.
template <class Method>
void settle(torch::optim::Optimizer& optimizer, std::deque<FlaggedStep>& unsettled,
            std::size_t index, bool skipped) {
  const auto parts = std::exchange(unsettled[index].parts, {});
  if (!skipped) return;
  for (const auto& [key, part] : parts) {
    auto* const state = find_state<typename Method::State>(optimizer, part.parameter);
    if (state == nullptr) continue;
    const auto later =
        std::find_if(unsettled.begin(), unsettled.end(),
                     [key = key](const auto& step) { return step.parts.contains(key); });
    if (!part.has_new_state) {
      Method::take_back(*state);
    } else if (later == unsettled.end()) {
      optimizer.state().erase(torch_compat::state_key(part.parameter));
    } else {
      Method::take_back(*state);
      later->parts.at(key).has_new_state = true;
    }
  }
}

// Waits for the flags. The steps remain in the list for settle_step().
template <class Method>
void settle_now(torch::optim::Optimizer& optimizer, std::deque<FlaggedStep>& unsettled) {
  for (std::size_t i = 0; i < unsettled.size(); ++i) {
    if (unsettled[i].parts.empty()) continue;
    settle<Method>(optimizer, unsettled, i, unsettled[i].flag.template item<float>() != 0);
  }
}

template <class Method>
void settle_oldest(torch::optim::Optimizer& optimizer, std::deque<FlaggedStep>& unsettled,
                   bool skipped) {
  settle<Method>(optimizer, unsettled, 0, skipped);
  unsettled.pop_front();
}

// Whether a parameter's next step would be its first one if a step that is not settled was skipped,
// and the update differs then.
template <class Method>
bool second_step_is_unsure(const std::deque<FlaggedStep>& unsettled) {
  return Method::kFirstStepDiffers && std::ranges::any_of(unsettled, [](const auto& step) {
           return std::ranges::any_of(step.parts,
                                      [](const auto& part) { return part.second.has_new_state; });
         });
}

}  // namespace ddp::optim
