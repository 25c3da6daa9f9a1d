// SPDX-License-Identifier: Apache-2.0
// A step that all ranks do together: gradients are averaged over the ranks, then each rank applies
// the same update.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/optim/abilities.h"
#include "ddp_runtime/optim/captured_step.h"
#include "ddp_runtime/train/step/graphed_step.h"
#include "ddp_runtime/train/step/loss_weights.h"
#include "ddp_runtime/train/step/skipped_updates.h"
#include "ddp_runtime/train/step/training_step.h"
#include "ddp_runtime/train/step/update_guard.h"

namespace ddp {
class ShardedOptimizer;
}  // namespace ddp

namespace ddp::train {

class SynchronousStep final : public TrainingStep {
 public:
  // See make_training_step().
  SynchronousStep(const StepTask& task, const TrainOptions& options, StepParts parts);
  SynchronousStep(const SynchronousStep&) = delete;
  SynchronousStep& operator=(const SynchronousStep&) = delete;
  ~SynchronousStep() override;

  // Collective over the group that has averaged the gradients so far, between two steps: from now
  // on, the ranks of `group` average them. Parameters and buffers take the values of its rank 0.
  // Not for steps that are captured, nor with weights of batches or shards.
  void average_over(comm::Group& group);

  void begin_at(std::int64_t step) override { steps_before_ = step; }
  StepOutcome run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) override;
  std::vector<SkippedUpdate> take_skipped() override { return skipped_.take(); }
  std::vector<std::string> take_notes() override;
  std::int64_t replays() const noexcept override { return replays_; }
  std::int64_t max_lead() const noexcept override { return 0; }
  void settle() override;
  nlohmann::json finish() override { return nullptr; }

  torch::optim::Optimizer& optimizer() noexcept override { return *optimizer_; }
  DistributedDataParallel* replica() noexcept override { return &*replica_; }
  amp::GradScaler* scaler() noexcept override { return scaler_ ? &*scaler_ : nullptr; }

 private:
  std::vector<data::Batch> weighed_batches(data::Prefetcher& batches);
  GradientStep begin(int micro_batches, std::int64_t tag);
  StepOutcome run_eagerly(data::Prefetcher& batches, std::optional<data::Batch> first,
                          std::int64_t tag);
  std::uint64_t seed_of_block(std::int64_t micro) const noexcept;
  LateValue run_micro_batch(GradientStep& step, torch::Tensor loss, bool last);
  bool skips() const noexcept;
  void prepare_guard();
  bool updates_in_backward() const noexcept;
  ShardedOptimizer* divider_of_gradients() const;
  std::vector<torch::Tensor> gradients() const;
  UpdateGuard::Have gradients_here() const;
  void finish(GradientStep& step);
  void clip();
  void update(GradientStep& step);
  void update_like_the_graph(GradientStep& step);

  // See Note [Graphs of steps].
  bool prepare_replay(const data::Batch& batch, double learning_rate);
  bool capture();
  GraphedStep::Results enqueue(const data::Batch& batch, const optim::DeviceNumbers& numbers,
                               const CutGraph& cut);
  void begin_collectives(const torch::Tensor& loss);
  void end_collectives();
  StepOutcome replay(std::int64_t tag);

  void note(const std::optional<UpdateGuard::Result>& settled);
  torch::Tensor scaled(const torch::Tensor& loss) const;

  const StepTask task_;
  comm::Group* group_;  // that averages gradients
  TrainOptions options_;
  torch::Device device_;
  std::optional<StepMarks> marks_;  // on a device
  std::unique_ptr<DistributedDataParallel> replica_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  optim::Abilities can_;  // of the optimizer
  GroupRates rates_;
  std::optional<LossWeights> weights_;  // set if the objective weighs batches
  std::optional<amp::GradScaler> scaler_;
  std::unique_ptr<UpdateGuard> guard_;  // from the first step on, if updates may be left out
  std::optional<GraphedStep> graph_;    // set if steps are captured, or will be
  bool graphed_ = false;  // whether steps take what a graph would take, even if it failed
  torch::Tensor never_;   // the flag of a step that is not skipped
  std::optional<GradientStep> replayed_;  // the current replay
  std::int64_t replays_ = 0;
  std::vector<std::string> notes_;  // for take_notes()
  bool noted_other_shape_ = false;

  std::int64_t steps_ = 0;
  std::int64_t steps_before_ = 0;             // of the run, before this object's
  std::vector<torch::Tensor> first_buffers_;  // after the first block's forward
  SkippedUpdates skipped_;
};

}  // namespace ddp::train
