// SPDX-License-Identifier: Apache-2.0
// One optimizer step of this rank: micro-batches forward and backward, then the update, or a reason
// to skip it. The trainer's loop is the same for synchronous and asynchronous steps.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/run_log.h"
#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/parallel/device/device_graph.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/model/optimizer.h"
#include "ddp_runtime/train/objective/evaluation.h"
#include "ddp_runtime/train/options/options.h"
#include "ddp_runtime/train/step/mean_loss.h"

namespace ddp::train {

class RankState;
class StagedModel;

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

  // Collective, before the first run() of a run that resumes, after its state was loaded: it has
  // made `step` steps.
  virtual void begin_at(std::int64_t /*step*/) {}
  // Takes the step's micro-batches from `batches`. `learning_rate` is that of the parameter groups
  // with the largest rate, see GroupRates. `tag` must be the same on all ranks. Throws RuntimeError
  // after kMaxLeftOut steps in a row without an update.
  virtual StepOutcome run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) = 0;
  // Whether run() uses the batches that it takes. If not, they may be empty.
  virtual bool needs_batches() const { return true; }
  // Whether the ranks have to evaluate the model together.
  virtual bool evaluates() const { return false; }
  // Collective, if they do, after settle(). Nullopt if it was interrupted.
  virtual std::optional<Evaluation> evaluate(const data::Dataset& /*data*/,
                                             std::int64_t /*samples*/,
                                             const Interruption& /*interruption*/) {
    return std::nullopt;
  }
  // Collective, after the last step: the report's section about stages, or null.
  virtual nlohmann::json pipeline_section() { return nullptr; }
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
  // state the same on all ranks until the next step, except for what rank_state() saves, and waits
  // until the state of the optimizer and of the scaler is that after the last step. Throws like
  // run().
  virtual void settle() = 0;
  // Collective, after the last step and settle(): returns what the report has about the steps, as
  // an object of its sections, or null.
  virtual nlohmann::json finish() = 0;

  // Not collective. Returns what a rank of the job has that others do not, such as stages, as a
  // sentence without capital and period; empty if all ranks do the same.
  virtual std::string describe_work_of(int /*world_rank*/) const { return {}; }

  // The optimizer that holds the state for checkpoints.
  virtual torch::optim::Optimizer& optimizer() noexcept = 0;
  // Null if there is none. After a step, it may be another one.
  virtual DistributedDataParallel* replica() noexcept = 0;
  virtual amp::GradScaler* scaler() noexcept = 0;  // on a device, not newer than take_skipped()

  // What each rank has on its own and a checkpoint needs; null if all is the same on all ranks.
  virtual RankState* rank_state() noexcept { return nullptr; }

  static constexpr int kMaxLeftOut = 50;
};

// What is trained, and by whom. All of it must outlive the step.
struct StepTask {
  comm::Group& group;
  torch::nn::Module& module;
  const Objective& objective;
  profile::StepRecorder& recorder;
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
  // For options.stages: the model that is cut.
  StagedModel* staged = nullptr;
};

// Throws `failure` with describe_work_of() the lost rank, which can no longer say it itself;
// returns if there is nothing to add. A failure within a step may have it already.
void throw_with_work(const PeerFailure& failure, const TrainingStep& step);

// Collective. Throws UsageError or RuntimeError on all ranks if the options or models do not match.
std::unique_ptr<TrainingStep> make_training_step(const StepTask& task, const TrainOptions& options,
                                                 StepParts parts = {});

}  // namespace ddp::train
