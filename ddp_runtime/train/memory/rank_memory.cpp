// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/memory/rank_memory.h"

#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"

namespace ddp::train {
namespace {

// A ShardedBuild keeps a part of a parameter on each rank.
std::int64_t bytes_on(torch::DeviceType device, const torch::nn::Module& model, int ranks) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : named_parameters(model)) {
    if (tensor.device().type() != device) continue;
    bytes += static_cast<std::int64_t>(tensor.nbytes()) / (is_without_memory(tensor) ? ranks : 1);
  }
  return bytes;
}

}  // namespace

RankMemory::RankMemory(comm::Group& group, const torch::nn::Module& model)
    : group_(group), host_(bytes_on(torch::kCPU, model, group.size())) {
  const auto device = device_of(model);
  if (device.is_cpu()) return;
  device_.emplace(group, device, bytes_on(device.type(), model, group.size()));
}

void RankMemory::begin() {
  device_ ? device_->begin() : host_.begin();
}

std::optional<std::int64_t> RankMemory::peak() const {
  constexpr std::int64_t kUnknown = -1;
  const auto mine = device_ ? device_->peak() : host_.peak();
  const auto most = group_.all_reduce_value(mine.value_or(kUnknown), comm::ReduceOp::max);
  return most == kUnknown ? std::nullopt : std::optional(most);
}

}  // namespace ddp::train
