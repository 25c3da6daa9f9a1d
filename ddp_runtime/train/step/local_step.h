// SPDX-License-Identifier: Apache-2.0
// A training step of this rank, or of its node, alone, with an average over all ranks after every
// few of them. The steps at the beginning may be synchronous. See LocalSteps.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "base/run_log.h"
#include "ddp_runtime/parallel/local/local_steps.h"
#include "ddp_runtime/train/state/local_state.h"
#include "ddp_runtime/train/step/synchronous_step.h"
#include "ddp_runtime/train/step/training_step.h"

namespace ddp::train {

class LocalStep final : public TrainingStep {
 public:
  // See make_training_step(). options.local must be set.
  LocalStep(const StepTask& task, const TrainOptions& options, StepParts parts);

  void begin_at(std::int64_t step) override;
  StepOutcome run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) override;
  std::vector<SkippedUpdate> take_skipped() override;
  std::vector<std::string> take_notes() override;
  std::int64_t max_lead() const noexcept override;
  // The model is the mean of the ranks then. Each rank keeps its own state of the optimizer.
  void settle() override;
  nlohmann::json finish() override;

  torch::optim::Optimizer& optimizer() noexcept override { return step_.optimizer(); }
  DistributedDataParallel* replica() noexcept override { return step_.replica(); }
  amp::GradScaler* scaler() noexcept override { return step_.scaler(); }
  RankState* rank_state() noexcept override { return &state_; }

 private:
  void take_group();
  void average_if_due();

  TrainOptions options_;
  profile::StepRecorder& recorder_;
  RunLog log_;
  LocalSteps local_;
  comm::Group* averages_gradients_;  // of step_
  SynchronousStep step_;
  LocalState state_;
  std::vector<std::string> notes_;
  double seconds_of_averages_ = 0;
};

}  // namespace ddp::train
