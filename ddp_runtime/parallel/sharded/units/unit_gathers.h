// SPDX-License-Identifier: Apache-2.0
// Gathers the parameters of units for each call and for backward, ahead of both, and gives their
// memory back.
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
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"
#include "ddp_runtime/parallel/sharded/plan/unit_order.h"
#include "ddp_runtime/parallel/sharded/units/read_check.h"
#include "ddp_runtime/parallel/sharded/units/sharded_units.h"
#include "ddp_runtime/parallel/sharded/units/unit_calls.h"
#include "ddp_runtime/parallel/sharded/units/whole_units.h"

namespace ddp {

class UnitGathers final : public UnitCalls {
 public:
  // Collective over `sharing`, the ranks that divide, which must outlive this object. Moves the
  // parameters to flat memory.
  UnitGathers(comm::Group& sharing, const torch::nn::Module& module,
              const std::vector<NamedTensor>& parameters, const ShardOptions& options);
  ~UnitGathers() override;

  std::optional<std::size_t> find_unit(const torch::nn::Module& module) const override;
  void enter(std::size_t unit) override;
  void expect_backward(std::size_t unit, const std::vector<torch::Tensor>& outputs) override;
  void leave(std::size_t unit) noexcept override;
  void note_read(const torch::Tensor& parameter, const char* reader) override;
  void begin_passes() override;
  void begin_pass() override;
  void end_pass() override;
  void end_passes() noexcept override;

  ShardedUnits& units() noexcept { return units_; }
  const ShardedUnits& units() const noexcept { return units_; }
  WholeUnits& whole() noexcept { return whole_; }
  const WholeUnits& whole() const noexcept { return whole_; }
  FlatShard::Kept kept() const noexcept { return kept_; }
  // The order of calls that the ranks expect.
  const UnitOrder::Units& expected() const noexcept { return order_.expected(); }

  // Throws UsageError if an operator has read a parameter that had no memory.
  void require_no_misuse();

  // The parts of a step, in their order. Collective. Begins with the order of calls that was
  // learned after the previous step; returns whether there is one.
  bool adopt_learned_order();
  void begin_step();
  // After a forward on this rank, or on others only.
  void end_forward(bool here);
  // Around a backward. Hooks may run on a device's backward thread, so what they call is under the
  // mutex, except before_backward(), which takes it.
  std::mutex& mutex() noexcept { return mutex_; }
  void begin_backward();
  // The backward of the unit is about to begin.
  void before_backward(std::size_t unit);
  // Units in the order of a backward through all of them.
  const UnitOrder::Units& backward() const noexcept { return order_.backward(); }
  // One of the unit's gradients is there.
  void note_gradient(std::size_t unit);
  // Takes part in the gathers of all units before this one's turn, and of it.
  void go_back_to(std::size_t unit);
  // `last`: of the step.
  void end_backward(bool last);
  // After the step: all ranks adopt the order of one of `all`, the first that has data.
  void learn_order(comm::Group& all);

 private:
  UnitOrder::Units call(std::size_t unit);
  void gather_each(const UnitOrder::Units& units, std::optional<std::size_t> wanted);
  void watch_reads();
  void find_frozen();
  bool keeps_after_forward(std::size_t unit) const;
  bool has_all_gradients(std::size_t unit) const;

  comm::Group& group_;  // gathers have an order of their own
  const FlatShard::Kept kept_;
  const bool reshard_after_forward_;
  ShardedUnits units_;
  WholeUnits whole_;
  UnitOrder order_;
  UnitOrder::Units calls_;  // of the last pass with data
  bool has_learned_ = false;
  std::optional<UnitOrder::Units> learned_;   // an order that is adopted in the next step
  std::vector<std::size_t> missing_in_unit_;  // gradients, in this backward

  std::mutex mutex_;
  // A step: in_step_, and in_backward_ within it, once for each micro-batch. Between two steps:
  // neither, and in_passes_ during ForwardPasses.
  bool in_step_ = false;
  bool in_backward_ = false;
  bool in_passes_ = false;
  std::int64_t entered_ = 0;        // units, without the root
  std::optional<ReadCheck> reads_;  // see Note [Reads outside of units]
  std::string misuse_;              // what it has found
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // for hooks of outputs
};

}  // namespace ddp
