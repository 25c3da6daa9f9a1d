// One optimiser step: micro-batches forward and backward, gradients averaged over the ranks, then
// the update, or a reason to leave it out.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/evaluation.h"
#include "ddp_runtime/train/loss_watch.h"
#include "ddp_runtime/train/options.h"

namespace ddp::train {

struct StepOutcome {
  double loss = 0;       // this rank's, mean over its micro-batches
  std::string left_out;  // why nothing was updated, the same on all ranks; empty if it was
};

class TrainingStep {
 public:
  // Collective. Throws UsageError or RuntimeError, on all ranks, if options or models do not fit.
  // All but the options must outlive this.
  TrainingStep(comm::Group& group, torch::nn::Module& module, const Forward& forward,
               const TrainOptions& options, profile::StepRecorder& recorder);

  // Collective. Takes the step's micro-batches from `batches`. `tag` must be the same on all ranks.
  // Throws RuntimeError, on all ranks, after kMostLeftOut steps in a row without an update.
  StepOutcome run(data::Prefetcher& batches, double learning_rate, std::int64_t tag);

  DistributedDataParallel& replica() noexcept { return replica_; }
  torch::optim::Optimizer& optimizer() noexcept { return *optimizer_; }
  // Null without loss scaling.
  amp::GradScaler* scaler() noexcept { return scaler_ ? &*scaler_ : nullptr; }

  static constexpr int kMostLeftOut = 50;

 private:
  double run_micro_batch(GradientStep& step, data::Prefetcher& batches, bool last);
  torch::Tensor loss_of(const data::Batch& batch) const;
  std::string why_leave_out();
  void finish(GradientStep& step, StepOutcome& outcome);

  comm::Group& group_;
  torch::nn::Module& module_;
  const Forward& forward_;
  TrainOptions options_;
  profile::StepRecorder& recorder_;
  DistributedDataParallel replica_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<amp::GradScaler> scaler_;
  std::optional<LossWatch> watch_;  // if steps whose loss is not finite are left out

  bool finite_ = true;                         // this rank's losses of this step
  std::vector<torch::Tensor> buffers_before_;  // what forward did to running means can be undone
  int left_out_in_a_row_ = 0;
};

}  // namespace ddp::train
