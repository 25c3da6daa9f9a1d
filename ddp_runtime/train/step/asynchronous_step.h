// SPDX-License-Identifier: Apache-2.0
// A training step that does not wait for the other ranks unless this rank is too far ahead of them.
// Gradients go to parameter servers, one on each rank. See docs/async.md.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "base/run_log.h"
#include "ddp_runtime/parallel/asynchronous/stale_synchronous.h"
#include "ddp_runtime/train/state/optimizer_state.h"
#include "ddp_runtime/train/step/training_step.h"

namespace ddp::train {

class AsynchronousStep final : public TrainingStep {
 public:
  // See make_training_step(). options.staleness must be set.
  AsynchronousStep(const StepTask& task, const TrainOptions& options, LogFunction log);

  StepOutcome run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) override;
  std::int64_t max_lead() const noexcept override { return *options_.staleness + 1; }
  void settle() override;
  nlohmann::json finish() override;

  // Holds the servers' momentum for checkpoints; its step() is never called.
  torch::optim::Optimizer& optimizer() noexcept override { return *optimizer_; }
  DistributedDataParallel* replica() noexcept override { return nullptr; }
  amp::GradScaler* scaler() noexcept override { return nullptr; }

 private:
  void take_momentum();
  LateValue run_micro_batch(data::Prefetcher& batches);
  // Returns why this rank cannot send gradients; empty if it can.
  std::string why_leave_out(double loss) const;
  void leave_out(const std::string& why, std::int64_t step);
  void hand_in(const std::string& left_out, double learning_rate);

  const StepTask task_;
  TrainOptions options_;
  torch::Device device_;
  RunLog log_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerState optimizer_state_;
  StaleSynchronous replica_;

  std::int64_t steps_ = 0;
  std::vector<torch::Tensor>
      buffers_before_;  // for restoring the running means after a skipped step
  int left_out_in_a_row_ = 0;
};

}  // namespace ddp::train
