// SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of each flat memory as soon as they are there, and keeps this rank's part.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/buckets/launch_order.h"
#include "ddp_runtime/parallel/sharded/memory/gradient_shards.h"
#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"
#include "ddp_runtime/parallel/sharded/plan/shard_groups.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"
#include "ddp_runtime/parallel/sharded/units/unit_gathers.h"

namespace ddp {

class ShardReductions {
 public:
  // Collective. Hooks into the gradients of the parameters of `gathers`, which must outlive this
  // object.
  ShardReductions(const ShardGroups& groups, UnitGathers& gathers, const ShardOptions& options);
  ShardReductions(const ShardReductions&) = delete;
  ShardReductions& operator=(const ShardReductions&) = delete;
  ~ShardReductions();

  // Follows the order of units that the ranks expect.
  void plan();

  // Discards the gradients of the previous step.
  void begin_step();
  // Around a backward, in which hooks take the mutex of the gathers. `last`: of the step.
  void begin_backward(bool last);
  // Parameters that the graph of this loss does not reach have no gradients.
  void expect_none_beside(const torch::Tensor& loss);
  void pass_without_data(std::size_t unit);
  std::vector<std::string> missing_names() const;
  void end_backward();
  // Collective: waits for all reductions. Then what is below is the same on all ranks.
  void finish();

  bool has_gradient(PlaceInFlat place) const;
  // This rank's part of a sum, a vector; undefined if no rank has used its parameter.
  torch::Tensor gradient_of(std::size_t flat, const FlatShard::Part& part) const;

  std::vector<profile::CommunicationSpan> take_spans() { return sums_->take_spans(); }
  void mark_on(StepMarks* marks) noexcept { sums_->mark_on(marks); }
  std::size_t count() const noexcept { return launches_.buckets.size(); }

 private:
  void on_gradient(std::size_t index);
  void mark_ready(std::size_t index);
  bool reduces() const noexcept { return in_last_ || !options_.reduce_once; }
  void launch(std::size_t place);

  const ShardGroups& groups_;
  UnitGathers& gathers_;
  ShardedUnits& units_;
  const ShardOptions options_;
  std::vector<std::optional<std::size_t>> sum_of_;  // in sums_, by flat, if it has gradients
  std::optional<GradientShards> sums_;
  BucketPlan launches_;
  std::optional<LaunchOrder> ready_;
  std::vector<std::uint8_t> used_;  // in this step, by this rank; after finish(), by any rank
  bool in_backward_ = false;
  bool in_last_ = false;  // backward of the step
};

}  // namespace ddp
