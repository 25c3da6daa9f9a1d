// SPDX-License-Identifier: Apache-2.0
// A step that all ranks do together: gradients are averaged over the ranks, then each rank applies
// the same update.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/train/device_skips.h"
#include "ddp_runtime/train/loss_watch.h"
#include "ddp_runtime/train/loss_weights.h"
#include "ddp_runtime/train/training_step.h"

namespace ddp::train {

class SynchronousStep final : public TrainingStep {
 public:
  // See make_training_step().
  SynchronousStep(comm::Group& group, torch::nn::Module& module, const Objective& objective,
                  const TrainOptions& options, profile::StepRecorder& recorder,
                  const OptimizerFactory& own_optimizer);
  SynchronousStep(const SynchronousStep&) = delete;
  SynchronousStep& operator=(const SynchronousStep&) = delete;
  ~SynchronousStep() override;

  StepOutcome run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) override;
  std::vector<SkippedUpdate> take_skipped() override;
  std::int64_t max_lead() const noexcept override { return 0; }
  void settle() override;
  nlohmann::json finish() override { return nullptr; }

  torch::optim::Optimizer& optimizer() noexcept override { return *optimizer_; }
  DistributedDataParallel* replica() noexcept override { return &replica_; }
  amp::GradScaler* scaler() noexcept override { return scaler_ ? &*scaler_ : nullptr; }

 private:
  std::vector<data::Batch> weighed_batches(data::Prefetcher& batches);
  LateValue run_micro_batch(GradientStep& step, torch::Tensor loss, bool last);
  bool skips() const noexcept;
  void begin_on_device();
  bool updates_in_backward() const noexcept;
  std::string why_leave_out();
  void finish(GradientStep& step);
  void finish_on_device(GradientStep& step);
  void update(GradientStep& step);
  void note(const std::optional<DeviceSkips::Result>& settled);
  void note_skipped(SkippedUpdate update);
  torch::Tensor scaled(const torch::Tensor& loss) const;

  comm::Group& group_;
  torch::nn::Module& module_;
  const Objective& objective_;
  TrainOptions options_;
  torch::Device device_;
  profile::StepRecorder& recorder_;
  std::optional<StepMarks> marks_;  // on a device
  DistributedDataParallel replica_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  GroupRates rates_;
  std::optional<LossWeights> weights_;  // set if the objective weighs batches
  std::optional<amp::GradScaler> scaler_;
  std::optional<LossWatch> watch_;  // set if steps whose loss is not finite are skipped, on CPUs
  std::optional<DeviceSkips> device_skips_;  // for the same and for the scaler, on a device

  std::int64_t steps_ = 0;
  bool finite_ = true;  // whether this rank's losses of this step are finite
  std::vector<torch::Tensor>
      buffers_before_;  // for restoring the running means after a skipped step
  int left_out_in_a_row_ = 0;
  std::vector<SkippedUpdate> skipped_;  // for take_skipped()
};

}  // namespace ddp::train
