// SPDX-License-Identifier: Apache-2.0
// The training loop: epochs of steps over a data set, with checkpoints, evaluation and a report.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/data/sampler.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/checkpointer.h"
#include "ddp_runtime/train/evaluation.h"
#include "ddp_runtime/train/learning_rate.h"
#include "ddp_runtime/train/options.h"
#include "ddp_runtime/train/progress.h"
#include "ddp_runtime/train/run_report.h"
#include "ddp_runtime/train/step_boundary.h"
#include "ddp_runtime/train/training_step.h"
#include "ddp_runtime/train/user_state.h"

namespace ddp::train {

struct TrainTask {
  std::string program;  // program and command line, for the report
  std::string command;
  std::string model_name;
  torch::nn::Module& module;
  Forward forward;
  data::DataPair data;
  UserState user_state = {};  // saved in checkpoints beside the model and the optimizer
  // Computes the loss to be minimized from forward's outputs and the targets: one number, the mean
  // over the batch. Default: the mean cross-entropy, for class scores. Runs under autocast, as
  // forward does.
  LossFunction loss = {};
  // Settings of model and data, by name, that the shapes of the arrays do not show: a resumed run
  // reports those that differ from the run that saved.
  nlohmann::json settings = nlohmann::json::object();
};

struct RunResult {
  std::int64_t step = 0;   // optimizer steps since the beginning of the run
  std::int64_t taken = 0;  // steps by this process; 0 if the run had already finished
  Evaluation evaluation;   // 0 targets mean that there was no evaluation
  double train_loss = 0;
  std::uint32_t parameters_crc32c = 0;
  std::int64_t planned_steps = 0;  // of the whole run, ignoring early stopping and dry runs
  bool stopped_early = false;      // options.patience was exhausted
  // Why the run saved a checkpoint and stopped early, to be resumed later; there is no evaluation
  // in that case. Empty if the run finished.
  std::string interrupted;
  // On rank 0 only:
  std::filesystem::path checkpoint;       // the newest; empty if none
  std::filesystem::path best_checkpoint;  // with keep_best, if this process found a better one
  std::filesystem::path report_file;      // run.json; empty if this process did not write one
  nlohmann::json report;                  // its contents; null if no step was taken
};

class Trainer {
 public:
  // Collective. Throws UsageError or RuntimeError, on all ranks, before training begins.
  Trainer(comm::Group& group, TrainTask task, TrainOptions options);

  // Collective. Resumes if there is a checkpoint to resume from, trains to the end, and evaluates.
  // If the resumed run had already finished, prints that, evaluates, and leaves the report as it
  // is.
  RunResult fit();

 private:
  void resume();
  void run_epoch();
  void run_step(data::Prefetcher& batches, double learning_rate);
  void finish_step();
  void reduce_losses();
  void evaluate_now();
  void end_epoch();
  void save_after_step();
  void save_last();
  void add_checkpoint_time(profile::Clock::time_point begin);
  RunResult finish();
  std::unique_ptr<RunReporter> make_reporter();
  RunOutcome outcome_so_far() const;
  void keep_report();
  RunResult finish_without_steps();
  RunResult result_so_far() const;
  bool evaluates() const noexcept { return task_.data.evaluation != nullptr; }
  std::int64_t epochs_of_run() const;
  bool epoch_done() const;
  bool checkpointing_enabled() const;
  void begin_agreement();
  void end_agreement(bool last_of_epoch);
  bool should_continue() const;
  RunResult finish_interrupted();
  std::int64_t planned_steps() const;
  std::int64_t last_step() const;
  ProgressPoint progress_point() const;

  comm::Group& group_;
  TrainTask task_;
  TrainOptions options_;
  profile::StepRecorder recorder_;
  Objective objective_;
  std::unique_ptr<TrainingStep> step_;
  LearningRate learning_rate_;
  data::DistributedSampler sampler_;
  TrainingState state_;
  Checkpointer checkpointer_;
  std::optional<StepBoundary>
      boundary_;  // nullopt: nothing is saved, and signals have their default effect
  std::optional<std::int64_t>
      asked_at_step_;        // step since which the answer of boundary_ is pending
  std::string interrupted_;  // see RunResult
  double longest_step_ = 0;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<RunReporter> reporter_;

  Position position_;
  std::int64_t epochs_ = 0;      // of the whole run
  std::int64_t first_step_ = 0;  // the step at which this process began
  double epoch_loss_ = 0;        // of the current or last epoch, over all ranks
  std::vector<StepLoss> losses_;
  std::size_t reduced_losses_ = 0;  // how many of losses_ are already means over all ranks
  Evaluation evaluation_;
  std::int64_t evaluated_step_ = -1;  // step of evaluation_
  double started_unix_ = 0;
};

}  // namespace ddp::train
