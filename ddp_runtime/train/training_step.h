// SPDX-License-Identifier: Apache-2.0
// One optimizer step of this rank: micro-batches forward and backward, then the update, or a reason
// to skip it. The trainer's loop is the same for synchronous and asynchronous steps.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/parallel/device_graph.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/evaluation.h"
#include "ddp_runtime/train/mean_loss.h"
#include "ddp_runtime/train/optimizer.h"
#include "ddp_runtime/train/options.h"
#include "ddp_runtime/train/run_log.h"

namespace ddp::train {

struct StepOutcome {
  MeanLoss loss;  // this rank's
};

// A step whose update was skipped on all ranks.
struct SkippedUpdate {
  std::int64_t step;  // of this TrainingStep, from 1
  std::string why;    // the same on all ranks
};

class TrainingStep {
 public:
  virtual ~TrainingStep() = default;
  TrainingStep() = default;
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  // Takes the step's micro-batches from `batches`. `learning_rate` is that of the parameter groups
  // with the largest rate, see GroupRates. `tag` must be the same on all ranks. Throws RuntimeError
  // after kMaxLeftOut steps in a row without an update.
  virtual StepOutcome run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) = 0;
  // The updates that run() and settle() have found to be skipped since the last call. On a device a
  // step's is found in the next step, or by settle(); see Note [Late values].
  virtual std::vector<SkippedUpdate> take_skipped() { return {}; }
  // Lines for the user about the way in which steps run, since the last call.
  virtual std::vector<std::string> take_notes() { return {}; }
  // Number of steps that were replays of a graph.
  virtual std::int64_t replays() const noexcept { return 0; }
  // Maximum number of steps by which one rank may be ahead of another. If 0, run() leaves the same
  // model on all ranks, which may then communicate in any step.
  virtual std::int64_t max_lead() const noexcept = 0;
  // Collective, after the same number of steps on all ranks: makes the model and the optimizer
  // state the same on all ranks until the next step, and waits until the state of the optimizer and
  // of the scaler is that after the last step. Throws like run().
  virtual void settle() = 0;
  // Collective, after the last step and settle(): returns the report's section about the steps, or
  // null.
  virtual nlohmann::json finish() = 0;

  // The optimizer that holds the state for checkpoints.
  virtual torch::optim::Optimizer& optimizer() noexcept = 0;
  // Null if there is none.
  virtual DistributedDataParallel* replica() noexcept = 0;
  virtual amp::GradScaler* scaler() noexcept = 0;  // on a device, not newer than take_skipped()

  static constexpr int kMaxLeftOut = 50;
};

// What a step may be given besides its options.
struct StepParts {
  // Makes the optimizer instead of options.optimizer; empty: that one.
  OptimizerFactory optimizer = {};
  // For synchronous steps, which are captured in it, on this thread's current stream; null: no step
  // is.
  std::unique_ptr<DeviceGraph> graph = nullptr;
  // Takes the warnings of asynchronous steps, which are about one rank, on that rank.
  LogFunction log = {};
};

// Collective. Throws UsageError or RuntimeError on all ranks if the options or models do not match.
// All arguments except the options and `parts` must outlive the step.
std::unique_ptr<TrainingStep> make_training_step(comm::Group& group, torch::nn::Module& module,
                                                 const Objective& objective,
                                                 const TrainOptions& options,
                                                 profile::StepRecorder& recorder,
                                                 StepParts parts = {});

}  // namespace ddp::train
