// SPDX-License-Identifier: Apache-2.0
// Reduces each rank's part of the gradients, and gathers the parameters of units when they are
// needed.
//
// Note [A unit's backward]
// When the gradient of one of its outputs is there, a unit is gathered again, unless it still is
// whole, and the one before it is gathered ahead. When all of its parameters have their gradients,
// no node of this backward reads them any more: a node that reads a parameter either computes a
// gradient of a parameter of the unit, or leads to one that does. That holds unless parameters are
// frozen, so units with frozen ones stay whole until backward is over. It does not hold for a
// parameter that is used both with and without detach(), which a unit must not do.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/gradient_exchange.h"
#include "ddp_runtime/parallel/buckets/launch_order.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/memory/gradient_shards.h"
#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"
#include "ddp_runtime/parallel/sharded/plan/shard_groups.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"
#include "ddp_runtime/parallel/sharded/plan/unit_order.h"
#include "ddp_runtime/parallel/sharded/units/read_check.h"
#include "ddp_runtime/parallel/sharded/units/sharded_units.h"
#include "ddp_runtime/parallel/sharded/units/unit_calls.h"
#include "ddp_runtime/parallel/sharded/units/whole_units.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {

class ShardExchange final : public GradientExchange,
                            public GatheringExchange,
                            public UnitCalls,
                            public ParameterShards {
 public:
  // Collective. `parameters` are those of the module that are averaged; they have the same values
  // on all ranks. Throws UsageError, the same on all ranks, for parameters that cannot be divided
  // and options that do not go together.
  ShardExchange(comm::Group& group, const torch::nn::Module& module,
                std::vector<NamedTensor> parameters, const ShardOptions& options);
  ~ShardExchange() override;

  void require_unchanged(const std::string& when) override;
  void begin_step(int /*micro_batches*/) override;
  void begin_backward(const torch::Tensor& loss, bool last) override;
  void end_backward(bool last) override;
  void end_forward(Forward forward) override;
  const std::vector<std::size_t>& gathers() const override { return whole_->gathered(); }
  std::string gathered() const override;
  void pass_without_data(bool last) override;
  void finish() override;
  GatheringExchange* gathering() noexcept override { return this; }
  CapturableExchange& capturable() override;
  void mark_on(StepMarks* marks) noexcept override;
  const std::vector<profile::CommunicationSpan>& communication() const noexcept override {
    return spans_;
  }
  std::size_t bucket_count() const noexcept override { return launches_.buckets.size(); }
  void require_optimizer(torch::optim::Optimizer& optimizer) const override;

  std::optional<std::size_t> find_unit(const torch::nn::Module& module) const override;
  void enter(std::size_t unit) override;
  void expect_backward(std::size_t unit, const std::vector<torch::Tensor>& outputs) override;
  void leave(std::size_t unit) noexcept override;
  void note_read(const torch::Tensor& parameter, const char* reader) override;
  void begin_passes() override;
  void begin_pass() override;
  void end_pass() override;
  void end_passes() noexcept override;

  const ShardGroups& groups() const noexcept override { return groups_; }
  const std::vector<std::unique_ptr<FlatShard>>& flats() const noexcept override {
    return units_.flats;
  }
  torch::Tensor gradient_of(std::size_t flat, const FlatShard::Part& part) const override;
  bool has_gradient(PlaceInFlat place) const override;
  void begin_update() override;
  void publish() override;

  // For WholeParameters.
  WholeUnits& whole() noexcept { return *whole_; }

 private:
  void plan_sums();
  void plan_launches();

  UnitOrder::Units call(std::size_t unit);
  void gather_each(const UnitOrder::Units& units, std::optional<std::size_t> wanted);
  void require_stream() const;
  void require_no_misuse();
  void watch_reads();
  void compare_parts(const std::string& when) const;
  void find_frozen();
  bool keeps_after_forward(std::size_t unit) const;
  bool has_all_gradients(std::size_t unit) const;
  void before_backward(std::size_t unit);
  void begin_backward_pass();
  void end_backward_pass(bool last);
  void on_gradient(std::size_t index);
  void mark_ready(std::size_t index);
  bool reduces() const noexcept { return in_last_ || !options_.reduce_once; }
  void launch(std::size_t place);
  std::vector<std::string> missing_names() const;
  void learn_order();

  ShardOptions options_;
  ShardGroups groups_;
  comm::Group& gathers_;  // of the ranks that divide: gathers have an order of their own
  FlatShard::Kept kept_;
  ShardedUnits units_;
  std::optional<WholeUnits> whole_;
  UnitOrder order_;
  UnitOrder::Units calls_;  // of the last pass with data
  bool has_learned_ = false;
  std::optional<UnitOrder::Units> learned_;  // an order that is adopted in the next step

  std::vector<std::optional<std::size_t>> sum_of_;  // in sums_, by flat, if it has gradients
  BucketPlan launches_;
  std::optional<LaunchOrder> ready_;
  std::vector<std::size_t> missing_in_unit_;  // gradients, in this backward
  std::optional<GradientShards> sums_;

  std::optional<torch::Device> device_;  // nullopt: the CPU
  void* stream_ = nullptr;               // of the device, in every step
  std::mutex mutex_;                     // hooks may run on a device's backward thread
  std::int64_t steps_ = 0;
  bool in_step_ = false;
  bool in_backward_ = false;
  bool in_last_ = false;            // backward of the step
  bool in_passes_ = false;          // outside of steps
  std::int64_t entered_ = 0;        // units, without the root
  std::optional<ReadCheck> reads_;  // see Note [Reads outside of units]
  std::string misuse_;              // what it has found
  std::vector<std::uint8_t> used_;  // in this step, by this rank; after finish(), by any rank
  std::vector<profile::CommunicationSpan> spans_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // for hooks of outputs
};

}  // namespace ddp
