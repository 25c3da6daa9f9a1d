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

}  // namespace ddp
