// SPDX-License-Identifier: Apache-2.0
// The implementation of Trainer: one training run.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/data/sampler.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/checkpoint/checkpointer.h"
#include "ddp_runtime/train/memory/rank_memory.h"
#include "ddp_runtime/train/memory/shard_prediction.h"
#include "ddp_runtime/train/model/weight_average.h"
#include "ddp_runtime/train/options/graph_hindrance.h"
#include "ddp_runtime/train/options/learning_rate.h"
#include "ddp_runtime/train/options/options.h"
#include "ddp_runtime/train/report/run_reporter.h"
#include "ddp_runtime/train/run/callback_calls.h"
#include "ddp_runtime/train/run/loss_history.h"
#include "ddp_runtime/train/run/progress.h"
#include "ddp_runtime/train/run/run_position.h"
#include "ddp_runtime/train/run/run_report.h"
#include "ddp_runtime/train/run/run_result.h"
#include "ddp_runtime/train/run/stop_agreement.h"
#include "ddp_runtime/train/run/train_task.h"
#include "ddp_runtime/train/state/training_state.h"
#include "ddp_runtime/train/step/training_step.h"
#include "ddp_runtime/train/step/training_stream.h"

namespace ddp::train {

// Does the work of Trainer and owns the objects that it needs.
class TrainingRun {
 public:
  TrainingRun(comm::Group& group, TrainTask task, TrainOptions options);

  RunResult fit();

 private:
  std::unique_ptr<WeightAverage> make_average();
  CheckpointOptions checkpoint_options() const;
  nlohmann::json description() const;
  bool resume();
  void begin_at(std::int64_t step);
  void initialize();
  RunResult run_epochs();
  RunResult run_to_the_end();
  void run_epoch();
  double next_learning_rate() const;
  void run_step(data::Prefetcher& batches, double learning_rate);
  void note_skipped_updates();
  nlohmann::json more_of_report(std::optional<std::int64_t> measured_peak) const;
  void settle();
  void finish_step();
  std::optional<double> save_if_due();
  void average_losses();
  // Calls `then`, if given, while the model has the weights that were evaluated.
  void evaluate_now(const std::function<void()>& then = {});
  void evaluate_present_weights();
  void end_epoch();
  void save_after_step();
  void save_last();
  void add_checkpoint_time(profile::Clock::time_point begin);
  std::uint32_t parameters_crc32c_now();
  RunResult finish();
  void add_report(RunResult& result, const nlohmann::json& report) const;
  std::unique_ptr<RunReporter> make_reporter();
  RunOutcome outcome_so_far() const;
  void keep_report(bool saved);
  RunResult finish_without_steps();
  RunResult only_evaluate(bool resumed);
  RunResult result_so_far() const;
  int data_ranks() const { return options_.stages.replicas(group_.size()); }
  const StageResidence* residence() const;
  bool evaluates() const noexcept { return task_.data.evaluation != nullptr; }
  const Evaluation* evaluation_or_null() const noexcept {
    return evaluates() ? &evaluation_ : nullptr;
  }
  bool checkpointing_enabled() const;
  bool should_continue() const;
  const BestValue& best() const noexcept { return run_.position.best.by(metric_); }
  RunResult finish_interrupted();
  RunResult only_save();
  ProgressPoint progress_point() const;

  comm::Group& group_;
  TrainTask task_;
  RankMemory memory_;       // before the parts of the training are made
  nlohmann::json subject_;  // model and data, by name
  TrainOptions options_;
  BestMetric metric_;
  profile::StepRecorder recorder_;
  GraphPlan graph_;
  Objective objective_;
  // Null unless steps are captured. After the weights were converted: what is freed then belongs to
  // the stream on which it was allocated.
  std::unique_ptr<TrainingStream> stream_;
  std::unique_ptr<TrainingStep> step_;
  LearningRate learning_rate_;
  data::DistributedSampler sampler_;
  RunPosition run_;
  std::unique_ptr<WeightAverage> average_;  // null without one
  TrainingState state_;
  Checkpointer checkpointer_;
  CallbackCalls callbacks_;
  StopAgreement stop_;
  std::unique_ptr<Progress> progress_;
  std::optional<ShardPrediction> prediction_;  // nullopt: unknown
  std::unique_ptr<RunReporter> reporter_;

  LossHistory losses_;
  Evaluation evaluation_;
  std::int64_t evaluated_step_ = -1;  // step of evaluation_
  double started_unix_ = 0;
};

}  // namespace ddp::train
