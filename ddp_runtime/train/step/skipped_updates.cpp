// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/skipped_updates.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/group/group_name.h"

namespace ddp::train {

void SkippedUpdates::note_update() noexcept {
  has_updated_ = true;
  in_a_row_ = 0;
}

void SkippedUpdates::note(SkippedUpdate skipped) {
  skipped_.push_back(std::move(skipped));
  if (++in_a_row_ < TrainingStep::kMaxLeftOut) return;
  throw RuntimeError(fmt::format(
      "the updates of {} steps in a row were skipped, most recently because {}; check the data, "
      "or lower the learning rate",
      in_a_row_, skipped_.back().why));
}

std::vector<SkippedUpdate> SkippedUpdates::take() {
  return std::exchange(skipped_, {});
}

std::string reason_of_losses(std::span<const int> ranks) {
  return fmt::format("the loss is not finite on {}", comm::describe_ranks(ranks));
}

std::string reason_of_gradients(const amp::GradScaler* scaler, float scale_before) {
  if (scaler == nullptr) return "a gradient is not finite";
  return fmt::format("the gradients overflowed with a loss scale of {}, which is now {}",
                     scale_before, scaler->scale());
}

}  // namespace ddp::train
