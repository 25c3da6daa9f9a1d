// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/units/unit_calls.h"

#include <ATen/autocast_mode.h>

#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"

namespace ddp {

UnitCalls* unit_calls_of(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (auto* const calls = unit_calls_of(item.value())) return calls;
  }
  for (const auto& child : module.children()) {
    if (auto* const calls = unit_calls_of(*child)) return calls;
  }
  return nullptr;
}

// Autocast would keep the casts of all units until the end of forward. With gradients, autograd
// keeps them anyway.
EnteredUnit::EnteredUnit(UnitCalls& calls, std::size_t unit)
    : calls_(calls), unit_(unit), keeps_casts_(at::autocast::is_autocast_cache_enabled()) {
  calls_.enter(unit_);
  if (!torch::GradMode::is_enabled()) at::autocast::set_autocast_cache_enabled(false);
}

EnteredUnit::~EnteredUnit() {
  at::autocast::set_autocast_cache_enabled(keeps_casts_);
  calls_.leave(unit_);
}

ForwardPasses::ForwardPasses(const torch::nn::Module& module) : calls_(unit_calls_of(module)) {
  if (calls_ != nullptr) calls_->begin_passes();
}

ForwardPasses::~ForwardPasses() {
  if (calls_ != nullptr) calls_->end_passes();
}

void ForwardPasses::begin() {
  if (calls_ != nullptr) calls_->begin_pass();
}

void ForwardPasses::end() {
  if (calls_ != nullptr) calls_->end_pass();
}

}  // namespace ddp
