// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/shard_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/buckets/missing_gradients.h"
#include "ddp_runtime/parallel/replica/same_parameters.h"
#include "ddp_runtime/parallel/sharded/shard_requirements.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {
namespace {

ShardGroups groups_for(comm::Group& group, const torch::nn::Module& module,
                       const std::vector<NamedTensor>& parameters, const ShardOptions& options) {
  require_shardable(module, parameters, options);
  auto groups = options.shard == Shard::hybrid ? groups_by_machine(group, options.hybrid_ranks)
                                               : ShardGroups::of_all(group);
  if (kept_with(options, module) == FlatShard::Kept::common) require_one_machine(groups.sharing);
  return groups;
}

// All are on one. Nullopt: the CPU.
std::optional<torch::Device> device_with(const std::vector<NamedTensor>& parameters) {
  for (const auto& parameter : parameters) {
    if (!parameter.tensor.is_cpu()) return parameter.tensor.device();
  }
  return std::nullopt;
}

}  // namespace

ShardExchange::ShardExchange(comm::Group& group, const torch::nn::Module& module,
                             const std::vector<NamedTensor>& parameters,
                             const ShardOptions& options)
    : options_(options),
      groups_(groups_for(group, module, parameters, options)),
      gathers_(groups_.sharing, module, parameters, options),
      reductions_(groups_, gathers_, options),
      device_(device_with(parameters)) {
  if (device_) stream_ = torch_compat::current_stream(*device_);
}

// See Note [Gradients on a device] in reducer.h.
void ShardExchange::require_stream() const {
  if (!device_ || torch_compat::current_stream(*device_) == stream_) return;
  throw UsageError(fmt::format(
      "a step runs on another stream of {} than the one on which ShardedDataParallel was "
      "constructed; make the same stream current for both",
      device_->str()));
}

void ShardExchange::require_unchanged(const std::string& when) {
  gathers_.require_no_misuse();
  gathers_.whole().require_unchanged();
  if (options_.data_parallel.check_parameters_every > 0) compare_parts(when);
}

// What several ranks have a part of, they must have alike: see Note [Replicas that drift apart].
void ShardExchange::compare_parts(const std::string& when) const {
  if (groups_.across == nullptr || gathers_.kept() != FlatShard::Kept::part) return;
  std::vector<NamedTensor> parts;
  for (const auto& flat : gathers_.units().flats) {
    for (const auto& part : flat->parts()) {
      parts.push_back(
          {gathers_.units().name_of(flat->arrays()[part.rows.array]), part.values.detach()});
    }
  }
  std::string difference;
  try {
    ddp::require_same_parameters(*groups_.across, parts, when);
  } catch (const RuntimeError& error) {
    difference = error.what();
  }
  // Ranks whose own parts are the same must not continue without the others.
  const std::int32_t differs = difference.empty() ? 0 : 1;
  if (groups_.all.all_reduce_value(differs, comm::ReduceOp::max) == 0) return;
  // The rank that fails first is the one that the user hears of.
  const auto texts = groups_.all.all_gather_text(difference);
  throw RuntimeError(*std::ranges::find_if_not(texts, &std::string::empty));
}

void ShardExchange::begin_step(int /*micro_batches*/) {
  gathers_.require_no_misuse();
  gathers_.whole().require_not_requested("begin_step() was called");
  gathers_.whole().require_unchanged();
  const auto every = options_.data_parallel.check_parameters_every;
  if (++steps_; every > 0 && steps_ % every == 0) {
    compare_parts(fmt::format("before step {}", steps_));
  }
  require_stream();
  reductions_.begin_step();
  if (gathers_.adopt_learned_order()) reductions_.plan();
  gathers_.begin_step();
}

void ShardExchange::end_forward(Forward forward) {
  gathers_.end_forward(forward != Forward::perhaps_made);
}

std::string ShardExchange::gathered() const {
  std::string names;
  for (const std::size_t unit : gathers()) {
    const bool is_root = unit == ShardedUnits::kRoot;
    names += (is_root ? std::string("the root") : gathers_.units().all[unit].name) + "\n";
  }
  return names;
}

void ShardExchange::begin_backward(const torch::Tensor& loss, bool last) {
  require_stream();
  const std::lock_guard lock(gathers_.mutex());
  gathers_.begin_backward();
  reductions_.begin_backward(last);
  if (options_.data_parallel.allow_unused) reductions_.expect_none_beside(loss);
}

void ShardExchange::end_backward(bool last) {
  gathers_.require_no_misuse();
  const auto missing = reductions_.missing_names();
  if (!missing.empty() && !options_.data_parallel.allow_unused && groups_.all.size() > 1) {
    throw RuntimeError(describe_missing(missing, gathers_.units().trained.size(), false));
  }
  end_backward_pass(last);
}

void ShardExchange::end_backward_pass(bool last) {
  const std::lock_guard lock(gathers_.mutex());
  reductions_.end_backward();
  gathers_.end_backward(last);
}

// In the order of a backward through all units, which GPUs must follow on all ranks.
void ShardExchange::pass_without_data(bool last) {
  gathers_.begin_backward();
  reductions_.begin_backward(last);
  for (const std::size_t unit : gathers_.backward()) {
    gathers_.before_backward(unit);
    reductions_.pass_without_data(unit);
  }
  end_backward_pass(last);
}

void ShardExchange::finish() {
  reductions_.finish();
  spans_ = gathers_.whole().take_spans();
  for (auto& span : reductions_.take_spans()) spans_.push_back(std::move(span));
  gathers_.learn_order(groups_.all);
}

CapturableExchange& ShardExchange::capturable() {
  throw UsageError("steps of ShardedDataParallel cannot be captured as a graph");
}

void ShardExchange::require_optimizer(torch::optim::Optimizer& optimizer) const {
  require_masters(optimizer, options_.data_parallel.reduce_type);
  const auto* const sharded = dynamic_cast<const ShardedOptimizer*>(&optimizer);
  if (sharded != nullptr && sharded->is_of(*this)) return;
  throw UsageError(
      "the step of a ShardedDataParallel needs a ShardedOptimizer that was made with it, because "
      "no rank has all gradients: ShardedOptimizer(std::move(optimizer), replica)");
}

}  // namespace ddp
