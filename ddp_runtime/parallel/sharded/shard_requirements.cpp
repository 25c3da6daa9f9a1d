// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/shard_requirements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/buckets/sparse_gradients.h"
#include "ddp_runtime/parallel/layers/each_module.h"
#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"
#include "ddp_runtime/parallel/sharded/units/sharded_units.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"

namespace ddp {
namespace {

void require_compatible(const ShardOptions& options, bool has_units) {
  require_reduce_type(options.data_parallel);
  const char* const hindrance = options.data_parallel.hook           ? "a communication hook"
                                : options.data_parallel.static_graph ? "static_graph"
                                : options.data_parallel.ordered_blocks
                                    ? "gradients that are added in an order of their own "
                                      "(ordered_blocks)"
                                    : nullptr;
  if (hindrance != nullptr) {
    throw UsageError(fmt::format(
        "ShardedDataParallel does not go together with {}; leave out one of them{}", hindrance,
        options.data_parallel.hook ? ", or use --reduce-type bf16, which halves the bytes that are "
                                     "sent, too"
                                   : ""));
  }
  if (has_units && options.units.empty()) {
    throw UsageError(
        "Shard::parameters, and Shard::hybrid on GPUs, need units, whose parameters are whole only "
        "while they compute; list their names in ShardOptions::units, such as \"blocks.*\"");
  }
  if (options.shard == Shard::gradients && !options.units.empty()) {
    throw UsageError(
        "ShardOptions::units are for Shard::parameters; with Shard::gradients, parameters are "
        "always whole");
  }
  if (options.shard == Shard::none || options.shard == Shard::optimizer) {
    throw UsageError(
        "ShardedDataParallel divides gradients or parameters; use DistributedDataParallel, with a "
        "ShardedOptimizer to divide the optimizer's state");
  }
}

// The GPUs of all ranks must run collectives of all channels in one order, but a rank that skips a
// unit reduces its gradients at another time.
void require_possible_on_device(const ShardOptions& options,
                                const std::vector<NamedTensor>& parameters) {
  const bool has_units = options.shard == Shard::parameters || options.shard == Shard::hybrid;
  if (!has_units || !options.data_parallel.allow_unused) return;
  if (parameters.empty() || parameters.front().tensor.is_cpu()) return;
  throw UsageError(
      "on GPUs, units do not go together with allow_unused yet; use Shard::gradients "
      "or leave out one of them");
}

// All that decides which collectives there are.
std::string describe_options(const ShardOptions& options) {
  const auto& buckets = options.data_parallel.buckets;
  return fmt::format(
      "Shard::{}, units [{}], reshard_after_forward {}, reduce_once {}, hybrid_ranks {}, {} "
      "ShardedBuild, "
      "allow_unused {}, buckets of {} and {} bytes",
      name_of_shard(options.shard), fmt::join(options.units, ", "), options.reshard_after_forward,
      options.reduce_once, options.hybrid_ranks, options.build == nullptr ? "no" : "a",
      options.data_parallel.allow_unused, buckets.first_bytes, buckets.bytes);
}

// Each would get memory of its own.
void require_separate(const std::vector<NamedTensor>& parameters) {
  optim::MemoryRanges memory;
  for (const auto& [name, tensor] : parameters) {
    if (!is_without_memory(tensor)) memory.add_written(tensor);
    if (tensor.device() == parameters.front().tensor.device()) continue;
    throw UsageError(fmt::format(
        "parameter '{}' is on {}, but '{}' is on {}; a model that is trained data-parallel must be "
        "on one device in each process",
        name, tensor.device().str(), parameters.front().name,
        parameters.front().tensor.device().str()));
  }
  if (memory.overlap()) {
    throw UsageError(
        "parameters share memory, which ShardedDataParallel would divide; use one tensor in all "
        "places");
  }
}

// It would be done by each rank of a node, during forward.
void require_no_writes_in_forward(const torch::nn::Module& module) {
  const auto refuse_if = [](const std::string& name, const auto* layer) {
    if (layer == nullptr || !layer->options.max_norm()) return;
    throw UsageError(fmt::format(
        "{} has a max_norm, so its forward writes to weights that the ranks of a node have in "
        "common; use Shard::gradients, or leave out max_norm",
        name));
  };
  for_each_module(module, [&](const std::string& name, const torch::nn::Module& layer) {
    refuse_if(name, dynamic_cast<const torch::nn::EmbeddingImpl*>(&layer));
    refuse_if(name, dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&layer));
  });
}

void require_values(const torch::nn::Module& module, const ShardOptions& options,
                    const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, tensor] : named_parameters(module)) {
    if (!is_without_memory(tensor)) continue;
    const auto* const of_module = tensor.unsafeGetTensorImpl();
    const bool is_averaged = std::ranges::any_of(parameters, [&](const NamedTensor& known) {
      return known.tensor.unsafeGetTensorImpl() == of_module;
    });
    if (!is_averaged) {
      throw UsageError(fmt::format(
          "parameter '{}' is ignored (DataParallelOptions::ignore), but was divided when it was "
          "built; do not give its module to ShardedBuild",
          name));
    }
    if (options.build != nullptr && options.build->has(tensor)) continue;
    throw UsageError(fmt::format(
        "parameter '{}' has no values, because it was divided when it was built, or is one of "
        "another ShardedDataParallel; set ShardOptions::build to the ShardedBuild that has it",
        name));
  }
}

void require_divisible(const torch::nn::Module& module,
                       const std::vector<NamedTensor>& parameters) {
  const auto sparse = sparse_weights(module);
  for (const auto& [name, tensor] : parameters) {
    if (sparse.contains(tensor.unsafeGetTensorImpl())) {
      throw UsageError(fmt::format(
          "parameter '{}' has sparse gradients, which ShardedDataParallel cannot divide; use "
          "DistributedDataParallel, or build the embedding without sparse",
          name));
    }
    require_dense(tensor, fmt::format("parameter '{}'", name));
  }
}

}  // namespace

const char* name_of_shard(Shard shard) {
  switch (shard) {
    case Shard::none:
      return "none";
    case Shard::optimizer:
      return "optimizer";
    case Shard::gradients:
      return "gradients";
    case Shard::parameters:
      return "parameters";
    case Shard::hybrid:
      return "hybrid";
  }
  return "";
}

void require_same_options(comm::Group& group, const ShardOptions& options) {
  const auto texts = group.all_gather_text(describe_options(options));
  const auto other = std::ranges::find_if(texts, [&](const auto& t) { return t != texts.front(); });
  if (other == texts.end()) return;
  throw UsageError(fmt::format(
      "the ranks have different ShardOptions: {} on rank {}, and {} on rank {}; give all ranks the "
      "same",
      texts.front(), group.world_rank(0), *other,
      group.world_rank(static_cast<int>(other - texts.begin()))));
}

void require_one_machine(comm::Group& group) {
  const auto keys = group.all_gather_text(group.machine_key());
  if (std::ranges::all_of(keys, [&](const auto& key) { return key == keys.front(); })) return;
  throw UsageError(
      "ShardOptions::hybrid_ranks makes ranks of several nodes have parameters in common, which "
      "CPUs can only within one; leave it out, or use Shard::parameters");
}

void require_shardable(const torch::nn::Module& module, const std::vector<NamedTensor>& parameters,
                       const ShardOptions& options) {
  require_compatible(options, kept_with(options, module) == FlatShard::Kept::part);
  if (kept_with(options, module) == FlatShard::Kept::common) require_no_writes_in_forward(module);
  require_values(module, options, parameters);
  require_divisible(module, parameters);
  require_separate(parameters);
  require_possible_on_device(options, parameters);
}

}  // namespace ddp
