// SPDX-License-Identifier: Apache-2.0
// Predicts the memory and the traffic of a rank for each way to divide a training among the ranks.
// No side effects: sizes in, bytes out.
//
// Note [What counts as memory]
// Weights, gradients and the optimizer's state, with the memory in which they are gathered and
// reduced. Buffers that are kept from step to step count as memory between steps: the two in which
// gradients are reduced (gradient_shards.h), and the two that WholeMemory keeps for the next units.
// Not counted: activations, batches, casts of autocast, an average of the weights, what MPI and
// libtorch allocate, and the rows by which the parts of ranks differ (shard_plan.h).
//
// Note [What counts as traffic]
// Bytes that leave a machine, divided by the number of its ranks, with the schedules for memory
// that the ranks of a machine share: what they exchange with each other is not sent. With one rank
// per machine and n ranks, these are the known 2 (n-1)/n of an all-reduce and (n-1)/n of each half.
// With several, a reduce-scatter sends as much as an all-reduce (node_parts.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddp {

enum class ShardStrategy : std::uint8_t {
  none,
  optimizer,
  gradients,
  parameters,
  parameters_kept,  // without giving memory back between forward and backward
  // All divided within a machine, and gradients summed across machines. On CPUs, the ranks of a
  // machine have the parameters in common.
  hybrid,
};

// As on the command line: "parameters --keep-after-forward".
std::string_view strategy_name(ShardStrategy strategy);

// Of a model whose parameters are divided; all sizes in bytes. `count`, `largest` and `last` leave
// out the root.
struct UnitSizes {
  std::int64_t count = 0;
  std::int64_t root = 0;
  std::int64_t largest = 0;
  std::int64_t last = 0;                  // the unit that forward calls last
  std::int64_t partly_frozen = 0;         // in total; those stay whole until backward is over
  std::int64_t largest_of_gradients = 0;  // of the root or a unit, those that are reduced together
};

// Gradients that are reduced in another type than their own.
struct ReducedSizes {
  std::int64_t sums = 0;            // all of them, as the optimizer gets them
  std::int64_t sent = 0;            // all of them, in the reduce type
  std::int64_t largest_bucket = 0;  // as below, in the reduce type
  std::int64_t largest_of_unit = 0;
};

struct TrainingSizes {
  std::int64_t trained = 0;  // parameters that have gradients
  std::int64_t frozen = 0;   // the others
  std::int64_t state = 0;    // of the optimizer in memory, for all parameters
  // The optimizer's state in files or, of GPUs, on the host, and the most memory in which a rank
  // updates parts of it.
  std::int64_t offloaded = 0;
  std::int64_t offload_buffers = 0;
  // Without shards of gradients: the largest of those that autograd has made and the reducer has
  // not copied yet. A tensor on a CPU, a bucket on a device.
  std::int64_t fresh_gradients = 0;
  // The largest that Shard::gradients reduces together.
  std::int64_t largest_bucket = 0;
  UnitSizes units = {};
  std::optional<ReducedSizes> reduced = {};  // nullopt: in the type of the parameters
};

struct RankLayout {
  int ranks = 1;
  int nodes = 1;  // with the same number of ranks each
  std::int64_t micro_batches = 1;
  bool on_gpus = false;
  bool hybrid_keeps = false;  // units whole between forward and backward, on GPUs
  bool reduces_once = false;  // ShardOptions::reduce_once
};

struct ShardCosts {
  int divided_by = 1;  // ranks that have different parts
  std::int64_t bytes_between_steps = 0;
  std::int64_t bytes_in_step = 0;    // at most, in addition
  std::int64_t bytes_sent = 0;       // per step
  std::int64_t bytes_offloaded = 0;  // beside this memory
};

// Of each rank, from the second step on, when all that is kept exists.
ShardCosts predict_costs(ShardStrategy strategy, const TrainingSizes& sizes,
                         const RankLayout& layout);

}  // namespace ddp
