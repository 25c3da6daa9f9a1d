// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/training_sizes.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/parallel/sharded/unit_list.h"
#include "ddp_runtime/parallel/tensor_buckets.h"
#include "ddp_runtime/train/shard_mode.h"

namespace ddp::train {
namespace {

std::int64_t size_in_bytes(const torch::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

// Tensors of a parameter's size.
std::optional<int> tensors_of_state(const torch::optim::OptimizerOptions& options) {
  using namespace torch::optim;
  if (const auto* sgd = dynamic_cast<const SGDOptions*>(&options)) {
    return sgd->momentum() != 0 ? 1 : 0;
  }
  if (const auto* adam = dynamic_cast<const AdamOptions*>(&options)) {
    return adam->amsgrad() ? 3 : 2;
  }
  if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&options)) {
    return adamw->amsgrad() ? 3 : 2;
  }
  if (const auto* rmsprop = dynamic_cast<const RMSpropOptions*>(&options)) {
    return 1 + (rmsprop->momentum() != 0 ? 1 : 0) + (rmsprop->centered() ? 1 : 0);
  }
  if (dynamic_cast<const AdagradOptions*>(&options) != nullptr) return 1;
  return std::nullopt;
}

// Short weights have a float32 master, whose state is float32, too.
std::int64_t state_of(const torch::Tensor& parameter, int tensors) {
  const auto type = parameter.scalar_type();
  const bool has_master = type == torch::kBFloat16 || type == torch::kHalf;
  return has_master ? parameter.numel() * 4 * (tensors + 1) : size_in_bytes(parameter) * tensors;
}

struct UnitBytes {
  std::int64_t trained = 0;
  std::int64_t frozen = 0;
};

std::vector<UnitBytes> bytes_of_units(const torch::nn::Module& module,
                                      const std::vector<NamedTensor>& parameters,
                                      const ShardOptions& options) {
  std::vector<UnitBytes> units;
  const auto kept =
      options.shard == Shard::parameters ? FlatShard::Kept::part : FlatShard::Kept::whole;
  for (const auto& [unit, of_unit] : units_of(module, parameters, options, kept)) {
    auto& bytes = units.emplace_back();
    for (const std::size_t i : unit.parameters) {
      const auto& tensor = parameters[i].tensor;
      (tensor.requires_grad() ? bytes.trained : bytes.frozen) += size_in_bytes(tensor);
    }
  }
  return units;
}

UnitSizes unit_sizes(const std::vector<UnitBytes>& units) {
  UnitSizes sizes;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto whole = units[i].trained + units[i].frozen;
    sizes.largest_of_gradients = std::max(sizes.largest_of_gradients, units[i].trained);
    if (i == 0) {
      sizes.root = whole;
      continue;
    }
    ++sizes.count;
    sizes.largest = std::max(sizes.largest, whole);
    sizes.last = whole;  // if they are called in the order in which they are registered
    if (units[i].frozen > 0) sizes.partly_frozen += whole;
  }
  return sizes;
}

// See Note [Gradients on a device] in reducer.h.
std::int64_t fresh_gradients(std::vector<NamedTensor> parameters, const BucketLimits& limits) {
  std::erase_if(parameters, [](const auto& p) { return !p.tensor.requires_grad(); });
  const auto plan = plan_buckets_of(parameters, reverse_order(parameters.size()), limits);
  std::size_t largest = 0;
  for (const auto& bucket : plan.buckets) {
    std::size_t bytes = 0;
    for (const std::size_t i : bucket) {
      const auto& tensor = parameters[i].tensor;
      bytes = tensor.is_cpu() ? std::max(bytes, tensor.nbytes()) : bytes + tensor.nbytes();
    }
    largest = std::max(largest, bytes);
  }
  return static_cast<std::int64_t>(largest);
}

TrainingSizes training_sizes(const torch::nn::Module& module, const TrainOptions& options) {
  const auto parameters = named_parameters(module);
  TrainingSizes sizes;
  for (const auto& [name, tensor] : parameters) {
    (tensor.requires_grad() ? sizes.trained : sizes.frozen) += size_in_bytes(tensor);
  }
  sizes.fresh_gradients = fresh_gradients(parameters, options.parallel.buckets);
  for (const auto& bucket : bytes_of_units(
           module, parameters, {.shard = Shard::gradients, .data_parallel = options.parallel})) {
    sizes.largest_bucket = std::max(sizes.largest_bucket, bucket.trained);
  }
  try {
    sizes.units = unit_sizes(
        bytes_of_units(module, parameters, {.shard = Shard::parameters, .units = options.units}));
  } catch (const UsageError&) {  // an error of another strategy only
  }
  return sizes;
}

ShardStrategy strategy_of(const TrainOptions& options) {
  const auto name = shard_mode_name(options.shard);
  for (const auto strategy : {ShardStrategy::optimizer, ShardStrategy::gradients,
                              ShardStrategy::parameters, ShardStrategy::hybrid}) {
    if (name != strategy_name(strategy)) continue;
    return strategy == ShardStrategy::parameters && !options.reshard_after_forward
               ? ShardStrategy::parameters_kept
               : strategy;
  }
  return ShardStrategy::none;
}

std::vector<ShardStrategy> possible_strategies(const TrainingSizes& sizes, const RankLayout& layout,
                                               ShardStrategy chosen) {
  std::vector<ShardStrategy> possible = {ShardStrategy::none, ShardStrategy::optimizer,
                                         ShardStrategy::gradients};
  const bool has_units = sizes.units.count > 0;
  if (has_units || chosen == ShardStrategy::parameters_kept) {
    possible.push_back(ShardStrategy::parameters_kept);
  }
  if (has_units || chosen == ShardStrategy::parameters) {
    possible.push_back(ShardStrategy::parameters);
  }
  const bool several_per_machine = layout.ranks > layout.nodes && layout.ranks % layout.nodes == 0;
  if (chosen == ShardStrategy::hybrid || ((has_units || !layout.on_gpus) && several_per_machine)) {
    possible.push_back(ShardStrategy::hybrid);
  }
  return possible;
}

}  // namespace

int count_machines(comm::Group& group) {
  const auto keys = group.all_gather_text(group.machine_key());
  return static_cast<int>(std::set(keys.begin(), keys.end()).size());
}

std::optional<std::int64_t> bytes_of_state(const torch::optim::Optimizer& optimizer) {
  std::int64_t bytes = 0;
  for (const auto& group : optimizer.param_groups()) {
    const auto tensors = tensors_of_state(group.options());
    if (!tensors) return std::nullopt;
    for (const auto& parameter : group.params()) bytes += state_of(parameter, *tensors);
  }
  return bytes;
}

std::optional<ShardPrediction> predict_shards(const torch::nn::Module& module,
                                              const torch::optim::Optimizer& optimizer,
                                              const TrainOptions& options, int ranks, int nodes) {
  const auto state = bytes_of_state(optimizer);
  if (!state || options.staleness) return std::nullopt;
  ShardPrediction prediction;
  prediction.chosen = strategy_of(options);
  prediction.sizes = training_sizes(module, options);
  prediction.sizes.state = *state;
  const auto parameters = module.parameters();
  const bool on_gpus = !parameters.empty() && !parameters.front().is_cpu();
  prediction.layout = {ranks, nodes, options.micro_batches, on_gpus,
                       !options.reshard_after_forward};
  prediction.possible = possible_strategies(prediction.sizes, prediction.layout, prediction.chosen);
  return prediction;
}

}  // namespace ddp::train
