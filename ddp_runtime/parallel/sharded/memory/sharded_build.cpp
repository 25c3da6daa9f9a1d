// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"

namespace ddp {

ShardedBuild::ShardedBuild(comm::Group& group, std::optional<torch::Device> device)
    : group_(group), device_(device) {}

void ShardedBuild::add(torch::nn::Module& part) {
  if (device_) part.to(*device_);
  if (group_.size() == 1) return;
  std::vector<NamedTensor> parameters;
  for (auto& parameter : named_parameters(part)) {
    if (is_without_memory(parameter.tensor)) continue;  // of a part within this one
    require_dense(parameter.tensor, fmt::format("parameter '{}'", parameter.name));
    parameters.push_back(std::move(parameter));
  }
  optim::MemoryRanges memory;
  for (const auto& parameter : parameters) memory.add_written(parameter.tensor);
  if (memory.overlap()) {
    throw UsageError(
        "parameters share memory, which ShardedBuild would divide; use one tensor in all places");
  }
  require_same_model(group_, parameters);
  broadcast_from_leader(group_, parameters);
  std::map<torch::ScalarType, std::vector<torch::Tensor>> kinds;
  for (const auto& [name, tensor] : parameters) kinds[tensor.scalar_type()].push_back(tensor);
  for (auto& [type, tensors] : kinds) divide(std::move(tensors));
}

void ShardedBuild::divide(std::vector<torch::Tensor> parameters) {
  flats_.push_back(
      std::make_unique<FlatShard>(group_, std::move(parameters), FlatShard::Kept::part));
}

FlatShard* ShardedBuild::find(const torch::Tensor& parameter) const {
  const auto found = std::ranges::find_if(
      flats_, [&](const auto& flat) { return flat->has_storage_of(parameter); });
  return found == flats_.end() ? nullptr : found->get();
}

bool ShardedBuild::has(const torch::Tensor& parameter) const {
  return find(parameter) != nullptr;
}

void ShardedBuild::make_whole(const torch::Tensor& parameter) {
  auto* const flat = find(parameter);
  if (flat == nullptr || flat->is_whole()) return;
  flat->start_gather(memory_, "parameters that were divided when they were built");
  flat->wait();
}

void ShardedBuild::forget_moved() {
  std::erase_if(flats_, [&](const auto& flat) {
    for (std::size_t i = 0; i < flat->arrays().size(); ++i) {
      if (flat->owns(i)) return false;
    }
    flat->release(memory_);
    return true;
  });
  if (flats_.empty()) memory_ = WholeMemory();
}

}  // namespace ddp
