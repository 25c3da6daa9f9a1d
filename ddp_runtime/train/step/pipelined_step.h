// SPDX-License-Identifier: Apache-2.0
// A step in which ranks run the stages of a model on the micro-batches.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/pipeline/pipeline.h"
#include "ddp_runtime/train/objective/objective.h"
#include "ddp_runtime/train/stages/staged_model.h"
#include "ddp_runtime/train/step/skipped_updates.h"
#include "ddp_runtime/train/step/training_step.h"

namespace ddp::train {

class PipelinedStep final : public TrainingStep {
 public:
  // See make_training_step().
  PipelinedStep(const StepTask& task, StagedModel& staged, const TrainOptions& options);
  PipelinedStep(const PipelinedStep&) = delete;
  PipelinedStep& operator=(const PipelinedStep&) = delete;

  StepOutcome run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) override;
  bool needs_batches() const override;
  std::vector<SkippedUpdate> take_skipped() override { return skipped_.take(); }
  std::int64_t max_lead() const noexcept override { return 0; }
  void settle() override;
  bool evaluates() const override { return true; }
  std::optional<Evaluation> evaluate(const data::Dataset& data, std::int64_t samples,
                                     const Interruption& interruption) override;
  nlohmann::json finish() override { return nullptr; }
  nlohmann::json pipeline_section() override;
  std::string describe_work_of(int world_rank) const override {
    return pipe_->describe_stages_of(world_rank);
  }

  torch::optim::Optimizer& optimizer() noexcept override { return *optimizer_; }
  DistributedDataParallel* replica() noexcept override { return nullptr; }
  amp::GradScaler* scaler() noexcept override { return scaler_ ? &*scaler_ : nullptr; }

 private:
  std::vector<pipeline::Stage> make_stages();
  torch::Tensor run_stage(int stage, const torch::Tensor& input);
  torch::Tensor loss_of_outputs(const torch::Tensor& outputs, const torch::Tensor& targets);
  pipeline::MicroBatch micro_batch_of(const data::Batch& batch) const;
  void record(profile::Clock::time_point begin);
  std::string why_leave_out(std::span<const torch::Tensor> losses);
  bool unscale();
  void note_skipped(SkippedUpdate update);
  bool skips() const noexcept { return options_.on_nan == OnNan::skip; }

  const StepTask task_;
  StagedModel& staged_;
  TrainOptions options_;
  torch::Device device_;
  std::vector<std::shared_ptr<torch::nn::Module>> own_;  // of this rank's stages
  std::unique_ptr<pipeline::Pipeline> pipe_;
  comm::Group* alike_ = nullptr;  // the ranks with the same stages; null with one pipeline
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  GroupRates rates_;
  std::optional<amp::GradScaler> scaler_;

  std::int64_t steps_ = 0;
  std::vector<torch::Tensor> buffers_before_;  // of own_, see on_nan
  SkippedUpdates skipped_;

  double forward_seconds_ = 0;         // of the current step, with the loss
  std::vector<double> piece_seconds_;  // forward only, of all steps
  double computing_seconds_ = 0;       // of all steps
  double waiting_seconds_ = 0;
};

}  // namespace ddp::train
