// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/shard_costs.h"

#include <algorithm>
#include <cmath>

namespace ddp {
namespace {

// See Note [What counts as traffic].
class Wire {
 public:
  explicit Wire(const RankLayout& layout)
      : ranks_(layout.ranks), nodes_(layout.nodes), local_(ranks_ / nodes_) {}

  // Each byte crosses the wire once per machine in either half.
  double all_reduce(double bytes) const { return 2 * bytes * (nodes_ - 1) / (nodes_ * local_); }
  double reduce_scatter(double bytes) const {
    return local_ > 1 ? all_reduce(bytes) : bytes * (ranks_ - 1) / ranks_;
  }
  // A ring through all ranks, which leaves a machine once. On one machine nothing is sent.
  double all_gather(double bytes) const {
    return nodes_ > 1 ? bytes * (ranks_ - 1) / (ranks_ * local_) : 0;
  }

 private:
  double ranks_;
  double nodes_;
  double local_;
};

std::int64_t part(std::int64_t bytes, int ranks) {
  return (bytes + ranks - 1) / ranks;
}

ReducedSizes reduced_of(const TrainingSizes& sizes) {
  return sizes.reduced.value_or(ReducedSizes{sizes.trained, sizes.trained, sizes.largest_bucket,
                                             sizes.units.largest_of_gradients});
}

std::int64_t parameters_of(const TrainingSizes& sizes) {
  return sizes.trained + sizes.frozen;
}

// The memory in which parameters are whole during a step, and what WholeMemory keeps of it.
struct WholeBytes {
  std::int64_t in_step = 0;
  std::int64_t kept = 0;
};

WholeBytes whole_bytes(const TrainingSizes& sizes, bool keeps_all) {
  const auto& units = sizes.units;
  const std::int64_t computing = std::min<std::int64_t>(units.count, 2);  // one is gathered ahead
  // WholeMemory keeps the two largest blocks, so that with two units the root gets one of theirs.
  const std::int64_t root =
      units.root > 0 && computing == 2 ? std::max(units.root, units.largest) : units.root;
  const std::int64_t all = root + parameters_of(sizes) - units.root;
  const std::int64_t in_turn = root + computing * units.largest + units.partly_frozen;
  const std::int64_t in_step = keeps_all ? all : std::min(all, in_turn);
  const std::int64_t kept =
      computing == 2 ? std::max(root, units.largest) + units.largest : root + units.largest;
  return {in_step, std::min(kept, in_step)};
}

// Beside all gradients, those that are sent.
std::int64_t rounded_copies(const ReducedSizes& reduced) {
  return reduced.sent < reduced.sums ? reduced.sent : 0;
}

ShardCosts memory_without_divided_gradients(const TrainingSizes& sizes, int ranks, int of_state) {
  const auto reduced = reduced_of(sizes);
  return {.divided_by = of_state,
          .bytes_between_steps = parameters_of(sizes) + reduced.sums + rounded_copies(reduced) +
                                 part(sizes.state, of_state),
          // A single rank has no buckets: the fresh gradients are the only ones.
          .bytes_in_step = ranks > 1 ? sizes.fresh_gradients : 0};
}

// Two buffers, and on GPUs one beside each of them for this rank's part: see gradient_shards.h.
std::int64_t buffers_of_gradients(std::int64_t largest, int n, bool on_gpus) {
  return 2 * largest + (on_gpus && n > 1 ? 2 * part(largest, n) : 0);
}

bool keeps_whole_gradients(const RankLayout& layout) {
  return layout.reduces_once && layout.micro_batches > 1;
}

// `fresh`: those that are reduced together. Whole gradients are there until the last backward,
// which adds the fresh ones to them.
std::int64_t gradients_in_step(const TrainingSizes& sizes, const RankLayout& layout,
                               std::int64_t fresh) {
  return keeps_whole_gradients(layout) ? reduced_of(sizes).sums + sizes.fresh_gradients : fresh;
}

ShardCosts memory_of_divided_gradients(const TrainingSizes& sizes, const RankLayout& layout) {
  const int n = layout.ranks;
  const auto reduced = reduced_of(sizes);
  return {.divided_by = n,
          .bytes_between_steps = parameters_of(sizes) + part(reduced.sums, n) +
                                 part(sizes.state, n) +
                                 buffers_of_gradients(reduced.largest_bucket, n, layout.on_gpus),
          .bytes_in_step = gradients_in_step(sizes, layout, sizes.largest_bucket)};
}

ShardCosts memory_of_divided_parameters(const TrainingSizes& sizes, const RankLayout& layout, int n,
                                        bool keeps_all) {
  const auto whole = n > 1 ? whole_bytes(sizes, keeps_all) : WholeBytes{};
  const auto reduced = reduced_of(sizes);
  return {.divided_by = n,
          .bytes_between_steps =
              part(parameters_of(sizes), n) + part(reduced.sums, n) + part(sizes.state, n) +
              buffers_of_gradients(reduced.largest_of_unit, n, layout.on_gpus) + whole.kept,
          .bytes_in_step = whole.in_step - whole.kept +
                           gradients_in_step(sizes, layout, sizes.units.largest_of_gradients)};
}

// A machine has the parameters once, of which each rank counts its part.
ShardCosts memory_of_common_parameters(const TrainingSizes& sizes, const RankLayout& layout,
                                       int n) {
  const auto reduced = reduced_of(sizes);
  return {.divided_by = n,
          .bytes_between_steps = part(parameters_of(sizes), n) + part(reduced.sums, n) +
                                 part(sizes.state, n) + 2 * reduced.largest_bucket,
          .bytes_in_step = gradients_in_step(sizes, layout, sizes.largest_bucket)};
}

// Where machines sum their parts, rounded copies of these are on their way in addition.
ShardCosts memory_of_hybrid(const TrainingSizes& sizes, const RankLayout& layout) {
  const int n = layout.ranks / layout.nodes;
  auto costs = layout.on_gpus ? memory_of_divided_parameters(sizes, layout, n, layout.hybrid_keeps)
                              : memory_of_common_parameters(sizes, layout, n);
  if (layout.nodes > 1) costs.bytes_in_step += part(rounded_copies(reduced_of(sizes)), n);
  return costs;
}

ShardCosts memory_of(ShardStrategy strategy, const TrainingSizes& sizes, const RankLayout& layout) {
  const int n = layout.ranks;
  switch (strategy) {
    case ShardStrategy::none:
      return memory_without_divided_gradients(sizes, n, 1);
    case ShardStrategy::optimizer:
      return memory_without_divided_gradients(sizes, n, n);
    case ShardStrategy::gradients:
      return memory_of_divided_gradients(sizes, layout);
    case ShardStrategy::parameters:
      return memory_of_divided_parameters(sizes, layout, n, false);
    case ShardStrategy::parameters_kept:
      return memory_of_divided_parameters(sizes, layout, n, true);
    case ShardStrategy::hybrid:
      return memory_of_hybrid(sizes, layout);
  }
  return {};
}

// The root is gathered once per step, units in every micro-batch: in forward and again in backward,
// which finds the last one still whole.
double gathered_by_units(const TrainingSizes& sizes, double micro_batches, bool keeps_all) {
  const auto root = static_cast<double>(sizes.units.root);
  const auto of_units = static_cast<double>(parameters_of(sizes)) - root;
  const auto last = static_cast<double>(sizes.units.last);
  return root + micro_batches * (keeps_all ? of_units : 2 * of_units - last);
}

double sent_by(ShardStrategy strategy, const TrainingSizes& sizes, const RankLayout& layout) {
  const Wire wire(layout);
  const auto trained = static_cast<double>(sizes.trained);
  const auto gradients = static_cast<double>(reduced_of(sizes).sent);
  const auto passes = static_cast<double>(layout.micro_batches);
  // Gradients that are divided are reduced in every micro-batch, unless they stay whole.
  const double reductions = keeps_whole_gradients(layout) ? 1 : passes;
  const double scattered = reductions * wire.reduce_scatter(gradients);
  switch (strategy) {
    case ShardStrategy::none:
      return wire.all_reduce(gradients);
    case ShardStrategy::optimizer:
      return wire.all_reduce(gradients) + wire.all_gather(trained);
    case ShardStrategy::gradients:
      return scattered + wire.all_gather(trained);
    case ShardStrategy::parameters:
      return scattered + wire.all_gather(gathered_by_units(sizes, passes, false));
    case ShardStrategy::parameters_kept:
      return scattered + wire.all_gather(gathered_by_units(sizes, passes, true));
    case ShardStrategy::hybrid:
      // Each rank of a machine sums its part with the same part of the other machines.
      return wire.all_reduce(gradients);
  }
  return 0;
}

}  // namespace

std::string_view strategy_name(ShardStrategy strategy) {
  switch (strategy) {
    case ShardStrategy::none:
      return "none";
    case ShardStrategy::optimizer:
      return "optimizer";
    case ShardStrategy::gradients:
      return "gradients";
    case ShardStrategy::parameters:
      return "parameters";
    case ShardStrategy::parameters_kept:
      return "parameters --keep-after-forward";
    case ShardStrategy::hybrid:
      return "hybrid";
  }
  return "";
}

ShardCosts predict_costs(ShardStrategy strategy, const TrainingSizes& sizes,
                         const RankLayout& layout) {
  auto costs = memory_of(strategy, sizes, layout);
  costs.bytes_offloaded = part(sizes.offloaded, costs.divided_by);
  costs.bytes_between_steps += std::min(sizes.offload_buffers, costs.bytes_offloaded);
  costs.bytes_sent = std::llround(sent_by(strategy, sizes, layout));
  return costs;
}

}  // namespace ddp
