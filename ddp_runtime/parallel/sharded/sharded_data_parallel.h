// SPDX-License-Identifier: Apache-2.0
// Data parallelism for models that do not fit: stages 2 and 3 of ZeRO (Rajbhandari et al., 2020),
// also known as fully sharded data parallelism (Zhao et al., 2023).
//
//   ddp::ShardedDataParallel replica(*net, group, {.units = {"blocks.*"}});
//   ddp::ShardedOptimizer optimizer(
//       std::make_unique<ddp::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3)),
//       replica);
//   for (auto& batch : loader) {
//     auto step = replica.begin_step();
//     step.backward(loss(net->forward(batch.x), batch.y));
//     step.apply(optimizer);
//   }
//
// Each rank keeps about 1/n of the parameters, of the gradients and of the optimizer's state. The
// parameters of a unit, such as a transformer's block, are whole only while it computes: in forward
// and again in backward. Units with frozen parameters stay whole until backward is over, and
// autocast keeps casts of all units from forward to backward, unless activations are recomputed
// (see activation_checkpoint.h). The model calls its units through ddp::unit() (see unit.h):
//
//   for (const auto& block : blocks_) x = ddp::unit(*block)(x);
//
// With Shard::gradients, and on CPUs with Shard::hybrid, parameters are always whole, and the model
// needs no change.
//
// The updates are bitwise those of DistributedDataParallel where ranks add up in the same order:
// with any number of ranks of one machine, and with two ranks; elsewhere they differ by rounding,
// as they do with other buckets. With several micro-batches, each one's gradients are reduced by
// themselves, so sums round in another order, unless ShardOptions::reduce_once keeps them whole.
#pragma once

#include <torch/torch.h>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"

namespace ddp {

class ParameterShards;
class ShardExchange;

class ShardedDataParallel final : public DistributedDataParallel {
 public:
  // Collective. Like DistributedDataParallel's, with its errors; the module takes rank 0's values.
  // Throws UsageError for options that do not go together, units that the model does not have, and
  // parameters that cannot be divided. With Shard::parameters, parameters have no values outside of
  // steps, except as WholeParameters. With Shard::hybrid, replicas of several nodes use three of
  // the parts that a rank can be in (see Group::split). In both cases, parameters have no values
  // any more when this object is destroyed.
  ShardedDataParallel(torch::nn::Module& module, comm::Group& group, const ShardOptions& options);
  ~ShardedDataParallel() override;

  // For ShardedOptimizer and checkpoints.
  ParameterShards& shards() noexcept;

 private:
  friend class WholeParameters;
  ShardExchange& exchange_;
};

// While it lives, all parameters of all ranks are whole, between two steps: to look at them, to
// evaluate different numbers of batches on the ranks, or to change them. That needs memory for all
// of them. Collective, as is the destruction.
class WholeParameters {
 public:
  explicit WholeParameters(ShardedDataParallel& replica);
  WholeParameters(const WholeParameters&) = delete;
  WholeParameters& operator=(const WholeParameters&) = delete;
  ~WholeParameters();

  // Changes that were made to the parameters, the same on all ranks, remain. Without this call,
  // changes to divided parameters are lost.
  void keep_changes();

 private:
  ShardExchange& exchange_;
};

}  // namespace ddp
