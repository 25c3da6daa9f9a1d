// SPDX-License-Identifier: Apache-2.0
// A step in which each rank gets its part of the averaged gradients only, and may have only its
// part of the parameters between two calls.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/gradient_exchange.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"
#include "ddp_runtime/parallel/sharded/plan/shard_groups.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"
#include "ddp_runtime/parallel/sharded/shard_reductions.h"
#include "ddp_runtime/parallel/sharded/units/unit_gathers.h"

namespace ddp {

class ShardExchange final : public GradientExchange,
                            public GatheringExchange,
                            public ParameterShards {
 public:
  // Collective. `parameters` are those of the module that are averaged; they have the same values
  // on all ranks. Throws UsageError, the same on all ranks, for parameters that cannot be divided
  // and options that do not go together.
  ShardExchange(comm::Group& group, const torch::nn::Module& module,
                const std::vector<NamedTensor>& parameters, const ShardOptions& options);

  void begin_step(int /*micro_batches*/) override;
  void begin_backward(const torch::Tensor& loss, bool last) override;
  void end_backward(bool last) override;
  void pass_without_data(bool last) override;
  void finish() override;
  GatheringExchange* gathering() noexcept override { return this; }
  CapturableExchange& capturable() override;
  void mark_on(StepMarks* marks) noexcept override { reductions_.mark_on(marks); }
  const std::vector<profile::CommunicationSpan>& communication() const noexcept override {
    return spans_;
  }
  std::size_t bucket_count() const noexcept override { return reductions_.count(); }
  void require_optimizer(torch::optim::Optimizer& optimizer) const override;

  void require_unchanged(const std::string& when) override;
  void end_forward(Forward forward) override;
  const std::vector<std::size_t>& gathers() const override { return gathers_.whole().gathered(); }
  std::string gathered() const override;

  const ShardGroups& groups() const noexcept override { return groups_; }
  const std::vector<std::unique_ptr<FlatShard>>& flats() const noexcept override {
    return gathers_.units().flats;
  }
  torch::Tensor gradient_of(std::size_t flat, const FlatShard::Part& part) const override {
    return reductions_.gradient_of(flat, part);
  }
  bool has_gradient(PlaceInFlat place) const override { return reductions_.has_gradient(place); }
  void begin_update() override { gathers_.whole().begin_update(); }
  void publish() override { gathers_.whole().end_update(); }

  // For WholeParameters.
  WholeUnits& whole() noexcept { return gathers_.whole(); }

 private:
  void require_stream() const;
  void compare_parts(const std::string& when) const;
  void end_backward_pass(bool last);

  ShardOptions options_;
  ShardGroups groups_;
  UnitGathers gathers_;
  ShardReductions reductions_;
  std::optional<torch::Device> device_;  // nullopt: the CPU
  void* stream_ = nullptr;               // of the device, in every step
  std::int64_t steps_ = 0;
  std::vector<profile::CommunicationSpan> spans_;
};

}  // namespace ddp
