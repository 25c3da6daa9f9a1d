// SPDX-License-Identifier: Apache-2.0
// The ends of a training run: finished, interrupted, with nothing to do, or only to save; its
// result and report.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/ddp_run/run_events.h"
#include "ddp_runtime/train/run/run_lines.h"
#include "ddp_runtime/train/run/starting_point.h"
#include "ddp_runtime/train/run/training_run.h"
#include "ddp_runtime/train/state/divided_parameters.h"

namespace ddp::train {

// The parts of the result that are known however the run ends.
RunResult TrainingRun::result_so_far() const {
  RunResult result;
  result.step = run_.position.step;
  result.taken = run_.steps_taken();
  result.evaluation = evaluation_;
  result.train_loss = run_.epoch_loss();
  result.planned_steps = learning_rate_.total_steps;
  if (checkpointing_enabled()) result.checkpoint = checkpointer_.newest();
  result.best_checkpoint = checkpointer_.best();
  return result;
}

// `report` is null on all ranks but rank 0.
void TrainingRun::add_report(RunResult& result, const nlohmann::json& report) const {
  result.report_file = reporter_->file();
  if (report.is_null()) return;
  if (result.taken > 0) result.report = report.dump();
  result.median_step_seconds = report.at("step_seconds").at("p50").get<double>();
  for (const auto& rank : report.at("ranks")) {
    result.peak_memory_bytes =
        std::max(result.peak_memory_bytes, rank.at("peak_memory_bytes").get<std::int64_t>());
  }
}

// Null if there is nothing to add.
nlohmann::json TrainingRun::more_of_report(std::optional<std::int64_t> measured_peak) const {
  nlohmann::json more;
  if (auto copies = checkpointer_.copies_summary(); !copies.is_null()) {
    more["memory_copies"] = std::move(copies);
  }
  if (prediction_) more["sharding"] = sharding_of_report(*prediction_, measured_peak);
  if (auto section = step_->pipeline_section(); !section.is_null()) {
    more["pipeline"] = std::move(section);
  }
  if (options_.graph.mode == GraphMode::off) return more;
  more["graph"] = step_->replays() > 0;
  more["graph_steps"] = step_->replays();
  return more;
}

std::uint32_t TrainingRun::parameters_crc32c_now() {
  auto* const replica = step_->replica();
  const DividedParameters divided(std::span(&replica, 1), {}, residence());
  return parameters_crc32c(group_, named_parameters(task_.module), divided);
}

// The next process evaluates and reports; this one may have little time left.
RunResult TrainingRun::finish_interrupted() {
  checkpointer_.leave();
  settle();
  average_losses();
  save_last();
  progress_.reset();
  reporter_->add_rows(losses_.take_averaged());
  auto interrupted = result_so_far();
  interrupted.interrupted = stop_.reason();
  interrupted.evaluation = {};  // could be from an earlier step
  const auto more = more_of_report(prediction_ ? memory_.peak() : std::nullopt);
  add_report(interrupted, reporter_->finish(outcome_so_far(), RunReporter::Ending::interrupted,
                                            stop_.reason(), more));
  return interrupted;
}

// ddp-run has started this process because only memory has the newest state. The processes that
// trained have reported, and the next one evaluates.
RunResult TrainingRun::only_save() {
  const StopSignals signals;  // the job has to end in any case
  if (!checkpointer_.enabled()) {
    throw UsageError(
        "ddp-run has started the program to save its state, but there is no --checkpoint-dir");
  }
  if (group_.rank() == 0) comm::tell_restoring();
  const auto saved = checkpointer_.save_copy();
  if (!saved) {
    throw RuntimeError(
        "ddp-run has started the program to save its state, but there is neither a copy of it in "
        "the memory of the nodes nor a checkpoint");
  }
  run_.position = *saved;
  run_.begin();
  learning_rate_.total_steps = run_.planned_steps();
  auto result = result_so_far();
  result.interrupted = "ddp-run has started it only to save its state";
  return result;
}

RunResult TrainingRun::only_evaluate(bool resumed) {
  if (!resumed && !task_.initial_weights) {
    throw UsageError(
        "there are no weights to evaluate: name a checkpoint with --resume or --checkpoint-dir, or "
        "a file of weights with --init-from");
  }
  std::uint32_t crc = 0;
  evaluate_now([&] { crc = parameters_crc32c_now(); });
  auto result = result_so_far();
  result.parameters_crc32c = crc;
  progress_->log(evaluated_line(resumed ? run_.position.step : 0, average_ != nullptr, evaluation_,
                                result.parameters_crc32c));
  if (const auto left = state_.average_left()) progress_->log(average_left_line(*left));
  progress_.reset();
  step_->finish();
  return result;
}

// The resumed run has no steps left. Unless its last process was stopped before it could evaluate,
// it was already finished: its report is worth more than one about this process.
RunResult TrainingRun::finish_without_steps() {
  // A process that was stopped in the last step of an epoch did not evaluate or save the best.
  const bool ends_epoch =
      run_.position.epoch < run_.epochs() && run_.position.consumed > 0 && run_.epoch_done();
  if (ends_epoch) end_epoch();
  if (!stop_.stops()) evaluate_now();
  if (checkpointing_enabled()) {
    keep_starting_point(group_, checkpointer_, run_.position, options_.checkpoint.directory,
                        *progress_);
    checkpointer_.remove_local_saves(run_.position.step);
  }
  auto ended = result_so_far();
  if (stop_.stops()) {
    ended.interrupted = stop_.reason();
    ended.evaluation = {};
    progress_.reset();
    return ended;
  }
  if (ends_epoch || reporter_->lacks_ending()) return finish();
  ended.stopped_early = best().exhausted(options_.patience);
  ended.parameters_crc32c = parameters_crc32c_now();
  progress_->log(nothing_to_do_line(run_.position.step, ended.stopped_early, evaluation_or_null(),
                                    ended.parameters_crc32c));
  progress_.reset();
  step_->finish();
  return ended;
}

RunResult TrainingRun::finish() {
  callbacks_.tell_progress();
  average_losses();
  evaluate_now();
  if (stop_.stops()) return finish_interrupted();
  if (auto* const replica = step_->replica()) replica->require_same_parameters();
  // A run that must stop within an epoch keeps its last steps, too.
  if (checkpointing_enabled()) save_last();
  auto ended = result_so_far();
  ended.finished = true;
  ended.stopped_early = callbacks_.stop_wanted() || best().exhausted(options_.patience);
  if (callbacks_.stop_wanted()) {
    progress_->log(stopped_by_callback_line(run_.position.epoch));
  } else if (ended.stopped_early) {
    progress_->log(no_better_line(best(), metric_));
  }
  progress_.reset();
  ended.parameters_crc32c = parameters_crc32c_now();

  auto outcome = outcome_so_far();
  if (evaluates()) outcome.evaluation = evaluation_;
  outcome.parameters_crc32c = ended.parameters_crc32c;
  const auto measured = prediction_ ? memory_.peak() : std::nullopt;
  auto more = more_of_report(measured);
  if (options_.dry_run && prediction_) ended.strategies = strategy_table(*prediction_, measured);
  const auto sections = step_->finish();
  if (!sections.is_null()) more.update(sections);
  reporter_->add_rows(losses_.take_averaged());
  add_report(ended, reporter_->finish(outcome, RunReporter::Ending::finished, "", more));
  return ended;
}

}  // namespace ddp::train
