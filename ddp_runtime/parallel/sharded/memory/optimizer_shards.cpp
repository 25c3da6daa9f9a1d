// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/memory/optimizer_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {
namespace {

std::vector<NamedTensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<NamedTensor> parameters;
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    for (const auto& parameter : optimizer.param_groups()[g].params()) {
      parameters.push_back({fmt::format("{}/{}", g, parameters.size()), parameter});
    }
  }
  return parameters;
}

void require_divisible_parameters(const std::vector<NamedTensor>& parameters) {
  optim::MemoryRanges memory;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    require_dense(parameters[i].tensor, fmt::format("parameter {} of the optimizer", i + 1));
    memory.add_written(parameters[i].tensor);
  }
  // Each would get memory of its own.
  if (memory.overlap()) {
    throw UsageError(
        "parameters of the optimizer share memory, which ShardedOptimizer would divide; use one "
        "tensor in all places, or the optimizer without shards");
  }
}

// The order of the parameters decides where each one is in memory.
void require_same_list(comm::Group& group, const std::vector<NamedTensor>& parameters) {
  const auto texts = group.all_gather_text(std::to_string(fingerprint_of(parameters)));
  const auto other = std::ranges::find_if(texts, [&](const auto& t) { return t != texts.front(); });
  if (other == texts.end()) return;
  throw RuntimeError(fmt::format(
      "the optimizers of ranks 0 and {} have different parameters, or in another order, which a "
      "ShardedOptimizer cannot divide; make the parameter groups alike on all ranks",
      other - texts.begin()));
}

using Kind = std::tuple<torch::ScalarType, torch::DeviceType, int>;

Kind kind_of(const torch::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.device().type(), tensor.device().index()};
}

bool same_places(const torch::Tensor& a, const torch::Tensor& b) {
  return a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

}  // namespace

OptimizerShards::OptimizerShards(comm::Group& group, const torch::optim::Optimizer& optimizer)
    : groups_(ShardGroups::of_all(group)) {
  const auto parameters = parameters_of(optimizer);
  require_divisible_parameters(parameters);
  require_same_list(group, parameters);
  std::vector<std::pair<Kind, std::vector<torch::Tensor>>> kinds;
  for (const auto& [name, tensor] : parameters) {
    const auto kind = kind_of(tensor);
    const auto known =
        std::ranges::find_if(kinds, [&](const auto& entry) { return entry.first == kind; });
    (known == kinds.end() ? kinds.emplace_back(kind, std::vector<torch::Tensor>()) : *known)
        .second.push_back(tensor);
  }
  for (auto& [kind, arrays] : kinds) {
    flats_.push_back(std::make_unique<FlatShard>(group, std::move(arrays), FlatShard::Kept::whole));
  }
}

// Without a copy if the memory of the gradient has the order of the parameter's.
torch::Tensor OptimizerShards::gradient_of(std::size_t flat, const FlatShard::Part& part) const {
  const auto& parameter = flats_[flat]->arrays()[part.rows.array];
  auto gradient = parameter.grad();
  if (!gradient.defined()) return {};
  if (!same_places(gradient, parameter)) {
    gradient = torch::empty_strided(parameter.sizes(), parameter.strides(), gradient.options())
                   .copy_(gradient);
  }
  return flats_[flat]->rows_in(gradient, part.rows);
}

bool OptimizerShards::has_gradient(PlaceInFlat place) const {
  return flats_[place.flat]->arrays()[place.array].grad().defined();
}

void OptimizerShards::publish() {
  for (const auto& flat : flats_) flat->publish("updated parameters");
  for (const auto& flat : flats_) flat->wait();
}

}  // namespace ddp
