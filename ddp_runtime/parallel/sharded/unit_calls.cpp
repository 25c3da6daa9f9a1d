// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/unit_calls.h"

#include "ddp_runtime/parallel/sharded/flat_shard.h"

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
