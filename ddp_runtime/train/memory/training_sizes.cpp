// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/memory/training_sizes.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/buckets/tensor_buckets.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/units/unit_list.h"
#include "ddp_runtime/train/model/state_offload.h"
#include "ddp_runtime/train/options/shard_mode.h"

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

// What is offloaded of a state: not that of small tensors, and not the masters on GPUs.
struct OffloadedState {
  std::int64_t bytes = 0;
  std::int64_t elements = 0;  // of its parameters
};

OffloadedState offloaded_state(const torch::optim::Optimizer& optimizer, bool on_gpus) {
  const auto least = on_gpus ? optim::HostState::kLeastValues : optim::StateFile::kLeastValues;
  OffloadedState offloaded;
  for (const auto& group : optimizer.param_groups()) {
    const int tensors = tensors_of_state(group.options()).value_or(0);
    for (const auto& parameter : group.params()) {
      if (parameter.numel() < least) continue;
      offloaded.bytes += state_of(parameter, tensors);
      offloaded.elements += parameter.numel();
      if (on_gpus && optim::MasterWeights::are_for(parameter)) {
        offloaded.bytes -= parameter.numel() * 4;
      }
    }
  }
  return offloaded;
}

// Of steps that read it in windows of so many elements.
std::int64_t bytes_of_windows(const OffloadedState& state, std::int64_t window) {
  return state.elements == 0
             ? 0
             : optim::WindowStream::kSlots * window * (state.bytes / state.elements);
}

std::int64_t size_in(torch::ScalarType type, const torch::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(c10::elementSize(type));
}

struct UnitBytes {
  std::int64_t trained = 0;
  std::int64_t frozen = 0;
  std::int64_t reduced = 0;  // gradients, in the type in which they are sent
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
      if (!tensor.requires_grad()) continue;
      bytes.reduced += size_in(
          type_on_the_wire(tensor.scalar_type(), options.data_parallel.reduce_type), tensor);
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

// A single rank sends nothing, so it rounds nothing.
ReduceType reduce_type_of(const TrainOptions& options, int ranks) {
  const auto type = options.parallel.reduce_type;
  return ranks == 1 && type == torch::kBFloat16 ? std::nullopt : type;
}

ReducedSizes reduced_sizes(const std::vector<NamedTensor>& parameters, const ReduceType& type) {
  ReducedSizes sizes;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) continue;
    sizes.sums += size_in(type_of_the_sum(tensor.scalar_type(), type), tensor);
    sizes.sent += size_in(type_on_the_wire(tensor.scalar_type(), type), tensor);
  }
  return sizes;
}

TrainingSizes training_sizes(const torch::nn::Module& module, const TrainOptions& options,
                             const ReduceType& reduce_type) {
  const auto parameters = named_parameters(module);
  TrainingSizes sizes;
  for (const auto& [name, tensor] : parameters) {
    (tensor.requires_grad() ? sizes.trained : sizes.frozen) += size_in_bytes(tensor);
  }
  sizes.fresh_gradients = fresh_gradients(parameters, options.parallel.buckets);
  auto reduced = reduced_sizes(parameters, reduce_type);
  auto parallel = options.parallel;
  parallel.reduce_type = reduce_type;
  for (const auto& bucket :
       bytes_of_units(module, parameters, {.shard = Shard::gradients, .data_parallel = parallel})) {
    sizes.largest_bucket = std::max(sizes.largest_bucket, bucket.trained);
    reduced.largest_bucket = std::max(reduced.largest_bucket, bucket.reduced);
  }
  try {
    const auto of_units = bytes_of_units(
        module, parameters,
        {.shard = Shard::parameters, .units = options.units, .data_parallel = parallel});
    sizes.units = unit_sizes(of_units);
    for (const auto& unit : of_units) {
      reduced.largest_of_unit = std::max(reduced.largest_of_unit, unit.reduced);
    }
  } catch (const UsageError&) {  // an error of another strategy only
  }
  if (reduce_type) sizes.reduced = reduced;
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
  if (!state || options.staleness || options.local) return std::nullopt;
  ShardPrediction prediction;
  prediction.chosen = strategy_of(options);
  prediction.sizes = training_sizes(module, options, reduce_type_of(options, ranks));
  prediction.reduce_type = reduce_type_name(options.parallel.reduce_type);
  const auto parameters = module.parameters();
  const bool on_gpus = !parameters.empty() && !parameters.front().is_cpu();
  const auto offloaded = offloads(options) ? offloaded_state(optimizer, on_gpus) : OffloadedState();
  prediction.sizes.state = *state - offloaded.bytes;
  prediction.sizes.offloaded = offloaded.bytes;
  prediction.sizes.offload_buffers =
      bytes_of_windows(offloaded, on_gpus ? optim::HostState::kWindow : optim::StateFile::kWindow);
  prediction.layout = {ranks,
                       nodes,
                       options.micro_batches,
                       on_gpus,
                       !options.reshard_after_forward,
                       options.reduce_once};
  prediction.possible = possible_strategies(prediction.sizes, prediction.layout, prediction.chosen);
  return prediction;
}

}  // namespace ddp::train
