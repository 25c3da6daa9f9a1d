// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/deadline.h"
#include "base/errors.h"
#include "base/host.h"
#include "base/run_log.h"
#include "ddp_runtime/comm/ddp_run/run_events.h"
#include "ddp_runtime/comm/ddp_run/run_memory.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/data/batch_transfer.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/train/memory/training_sizes.h"
#include "ddp_runtime/train/model/channels_last.h"
#include "ddp_runtime/train/run/run_description.h"
#include "ddp_runtime/train/run/run_lines.h"
#include "ddp_runtime/train/run/run_start.h"
#include "ddp_runtime/train/run/starting_point.h"
#include "ddp_runtime/train/stages/staged_model.h"
#include "ddp_runtime/train/state/divided_parameters.h"
#include "ddp_runtime/train/step/batch_advice.h"
#include "ddp_runtime/train/step/gpu_advice.h"
#include "hdf5_ckpt/convert/checkpoint_arrays.h"

namespace ddp::train {
namespace {

using profile::Phase;

constexpr int kPrefetchedBatches = 4;     // or one for each loader thread, if there are more
constexpr std::size_t kRecentSteps = 20;  // for the displayed rate

// An evaluation draws no samples for training, of which there may be fewer than in a batch.
data::BatchLayout layout_of(const comm::Group& group, const TrainOptions& options) {
  if (options.evaluate_only) return {};
  const auto& stages = options.stages;
  return {options.batch, options.micro_batches, stages.replica(group.rank()),
          stages.replicas(group.size()), options.blocks > 0};
}

// Of a file whose weights are only evaluated.
void take_average(InitOptions& options) {
  if (!options.prefix) options.prefix = ckpt::kAveragePrefix;
  if (ckpt::asks_for_average(*options.prefix)) return;
  throw UsageError(
      fmt::format("--ema evaluates the average of the weights in --init-from, and --init-prefix {} "
                  "takes others; leave out one of them",
                  *options.prefix));
}

std::unique_ptr<TrainingStream> stream_for(const GraphPlan& plan, torch::Device device) {
  return plan.graph ? std::make_unique<TrainingStream>(device) : nullptr;
}

}  // namespace

TrainingRun::TrainingRun(comm::Group& group, TrainTask task, TrainOptions options)
    : group_(group),
      task_(std::move(task)),
      memory_(group, task_.module),
      subject_(describe_subject(task_)),
      options_(same_on_all_ranks(group, subject_, std::move(options))),
      metric_(parse_best_metric(options_.checkpoint.best_metric)),
      graph_(plan_graph(device_of(task_.module), graph_task_of(task_, group.size()), options_)),
      objective_(objective_of(task_, options_)),
      stream_(stream_for(graph_, device_of(task_.module))),
      step_(make_training_step(
          {group, task_.module, objective_, recorder_}, options_,
          {task_.optimizer, std::move(graph_.graph), task_.log, task_.staged.get()})),
      learning_rate_(
          learning_rate_of(options_, data_ranks(), GroupRates(step_->optimizer()).base())),
      sampler_(task_.data.train->size(), options_.seed, layout_of(group, options_)),
      run_({options_.epochs, options_.steps},
           {task_.data.train->size(), sampler_.layout().global_batch()}, options_.dry_run),
      average_(make_average()),
      state_(group, task_.module, step_->optimizer(), step_->replica(), task_.user_state,
             step_->rank_state(), residence()),
      checkpointer_(group, state_, checkpoint_options(), description(), task_.log),
      callbacks_(group, task_.callbacks),
      stop_(checkpointer_) {
  require_evaluation(task_, options_);
  require_report_directory(group_, options_.report_directory);
  if (options_.evaluate_only) state_.load_only_weights();
  torch::manual_seed(generator_seed(options_.seed, group_.rank()));
}

const StageResidence* TrainingRun::residence() const {
  return options_.stages.wanted() ? &task_.staged->residence() : nullptr;
}

// Begins with the weights that all ranks have, and adds itself to the state that is saved.
std::unique_ptr<WeightAverage> TrainingRun::make_average() {
  if (options_.ema_decay == 0) return nullptr;
  auto average =
      std::make_unique<WeightAverage>(task_.module, options_.ema_decay, step_->replica());
  average->save_in(task_.user_state);
  return average;
}

// An evaluation does not continue an epoch, so that its data may be others.
CheckpointOptions TrainingRun::checkpoint_options() const {
  auto options = options_.checkpoint;
  if (options_.evaluate_only) options.resume_changed = true;
  return options;
}

nlohmann::json TrainingRun::description() const {
  return options_.evaluate_only ? describe_evaluation(subject_, task_, options_)
                                : describe_run(subject_, task_, options_, sampler_.layout());
}

bool TrainingRun::checkpointing_enabled() const {
  return checkpointer_.enabled() && !options_.dry_run;
}

// Returns false if there is nothing to resume from.
bool TrainingRun::resume() {
  const auto resumed = checkpointer_.resume(generator_seed(options_.seed, group_.rank()));
  callbacks_.begin_after(checkpointer_);
  if (!resumed) return false;
  run_.position = *resumed;
  auto* const scaler = step_->scaler();
  if (scaler != nullptr && run_.position.loss_scale.scale > 0)
    scaler->restore(run_.position.loss_scale);
  if (task_.initial_weights && group_.rank() == 0) {
    RunLog(task_.log).line(fmt::format(
        "initial weights: {} is not read, because {}", task_.initial_weights->source.string(),
        options_.evaluate_only ? "there is a checkpoint to evaluate" : "the run resumes"));
  }
  return true;
}

void TrainingRun::begin_at(std::int64_t step) {
  step_->begin_at(step);
  state_.replace_replica(step_->replica());
}

void TrainingRun::initialize() {
  if (!task_.initial_weights) return;
  if (options_.stages.wanted()) {
    throw UsageError(
        "--stages does not go together with --init-from; resume from a checkpoint that was trained "
        "with these weights, or leave out one of them");
  }
  auto weights = *task_.initial_weights;
  if (options_.evaluate_only && average_) take_average(weights.options);
  state_.initialize([&](const std::vector<NamedTensor>& tensors) {
    const auto report = fill_from(weights.source, weights.options, task_.module, tensors);
    auto table = init_table(report);
    if (table.ends_with('\n')) table.pop_back();
    Progress(/*enabled=*/true, 0, task_.log).log(table);
  });
  if (average_) average_->restart();
}

bool TrainingRun::should_continue() const {
  return !stop_.stops() && !callbacks_.stop_wanted() && run_.has_steps() &&
         !best().exhausted(options_.patience);
}

RunResult TrainingRun::fit() {
  if (comm::started_to_save() && !options_.dry_run) return only_save();
  started_unix_ = unix_seconds();
  if (checkpointing_enabled()) {
    stop_.open(group_, RunLog(task_.log));
    if (group_.rank() == 0) comm::tell_restoring();
  }
  const bool resumed = !options_.dry_run && resume();
  resumed ? begin_at(run_.position.step) : initialize();
  run_.begin();
  learning_rate_.total_steps = run_.planned_steps();
  progress_ = std::make_unique<Progress>(group_.rank() == 0, run_.first_step(), task_.log);
  if (!options_.stages.wanted()) {
    prediction_ = predict_shards(task_.module, step_->optimizer(), options_, group_.size(),
                                 count_machines(group_));
  }
  reporter_ = make_reporter();
  if (options_.evaluate_only) return only_evaluate(resumed);
  if (!graph_.hindrance.empty()) {
    progress_->log(fmt::format("graph: steps run eagerly, because {}", graph_.hindrance));
  }
  if (options_.schedule == Schedule::cosine && !task_.schedule) {
    const auto why = run_.why_schedule_is_cut();
    if (!why.empty()) progress_->log(why);
  }
  memory_.begin();
  callbacks_.begin_after_step(run_.first_step());
  try {
    return run_epochs();
  } catch (const std::exception& error) {
    reporter_->failed(outcome_so_far(), error.what());
    throw;
  }
}

RunResult TrainingRun::run_epochs() {
  try {
    auto result = run_to_the_end();
    checkpointer_.finish_commands();
    return result;
  } catch (const c10::Error& error) {
    throw_with_gpu_advice(error);
    throw_with_batch_advice(error, options_.batch, options_.blocks);
    throw;
  } catch (const PeerFailure& failure) {
    throw_with_work(failure, *step_);
    throw;
  }
}

RunResult TrainingRun::run_to_the_end() {
  if (!should_continue()) return finish_without_steps();
  while (should_continue()) run_epoch();
  return !stop_.stops() ? finish() : finish_interrupted();
}

std::unique_ptr<RunReporter> TrainingRun::make_reporter() {
  RunFacts facts{task_.program,
                 task_.command,
                 task_.model_name,
                 task_.data.name,
                 models::parameter_count(task_.module),
                 sampler_.layout().global_batch(),
                 run_.epochs(),
                 started_unix_,
                 torch::get_num_threads(),
                 describe_settings(task_, options_),
                 c10::DeviceTypeName(device_of(task_.module).type(), /*lower_case=*/true),
                 prediction_ ? sharding_of_report(*prediction_, std::nullopt) : nullptr};
  ReportTarget target{options_.dry_run ? std::filesystem::path() : options_.report_directory,
                      run_.first_step()};
  return std::make_unique<RunReporter>(group_, std::move(facts), std::move(target), recorder_,
                                       step_->max_lead() == 0, task_.log);
}

RunOutcome TrainingRun::outcome_so_far() const {
  return {run_.steps_taken(), run_.epoch_loss(), std::nullopt, std::nullopt,
          run_.position.best.loss.cost};
}

// `saved`: the state after this step. A process that resumes from there does not make the step
// again, so its row must be in the file.
void TrainingRun::keep_report(bool saved) {
  const bool due = reporter_->after_step();
  if (due) average_losses();
  reporter_->add_rows(losses_.take_averaged());
  if (due) reporter_->update(outcome_so_far());
  if (saved) reporter_->keep_rows();
}

void TrainingRun::run_epoch() {
  sampler_.set_epoch(run_.position.epoch, run_.position.consumed);
  const std::int64_t steps = std::min(sampler_.steps_left(), run_.last_step() - run_.position.step);
  {
    const auto device = device_of(task_.module);
    data::Prefetcher batches(
        steps * options_.micro_batches,
        [this, device](std::int64_t number) {
          if (!step_->needs_batches()) return data::Batch();
          auto batch = task_.data.train->draw(
              sampler_.indices(number / options_.micro_batches, number % options_.micro_batches),
              sampler_.epoch());
          if (options_.channels_last) batch.inputs = in_channels_last(batch.inputs);
          return pin_for(device, batch);
        },
        options_.loader_threads, std::max(kPrefetchedBatches, options_.loader_threads));
    for (std::int64_t step = 0; step < steps && !stop_.stops(); ++step) {
      recorder_.begin_step();
      stop_.begin(run_.position.step, step_->max_lead());
      run_step(batches, next_learning_rate());
      run_.position.consumed = sampler_.consumed_after(step + 1);
      stop_.end(run_.position, step_->max_lead(), step + 1 == steps);
      finish_step();
    }
  }
  if (run_.epoch_done() && !stop_.stops()) end_epoch();
}

double TrainingRun::next_learning_rate() const {
  if (!task_.schedule) {
    LearningRate rate = learning_rate_;
    const auto scheduled = run_.scheduled();
    rate.total_steps = scheduled.total;
    return rate.at(scheduled.done, run_.position.epoch);
  }
  const double factor =
      task_.schedule({run_.position.step, run_.position.epoch, learning_rate_.total_steps});
  if (!std::isfinite(factor) || factor < 0) {
    throw UsageError(fmt::format(
        "the task's schedule returned {} for step {}; it must be a number that is 0 or more",
        factor, run_.position.step));
  }
  return learning_rate_.base * learning_rate_.scale * factor;
}

void TrainingRun::run_step(data::Prefetcher& batches, double learning_rate) {
  group_.flight_recorder().set_phase(
      fmt::format("epoch {}, step {}", run_.position.epoch + 1, run_.position.step + 1));
  auto outcome = step_->run(batches, learning_rate, run_.position.consumed);
  state_.replace_replica(step_->replica());
  ++run_.position.step;
  if (average_) {
    const auto span = recorder_.measure(Phase::optimizer);
    average_->update(run_.position.step);
  }
  losses_.add(
      {.step = run_.position.step, .epoch = run_.position.epoch, .learning_rate = learning_rate},
      std::move(outcome.loss));
  note_skipped_updates();
  for (const auto& note : step_->take_notes()) progress_->log(note);
}

void TrainingRun::note_skipped_updates() {
  if (const auto* scaler = step_->scaler()) run_.position.loss_scale = scaler->state();
  for (const auto& update : step_->take_skipped()) {
    progress_->log(
        fmt::format("step {}: update skipped: {}", run_.first_step() + update.step, update.why));
  }
}

// After this, the model, the optimizer and the position are those of a checkpoint.
void TrainingRun::settle() {
  step_->settle();
  recorder_.collect();
  note_skipped_updates();
}

void TrainingRun::finish_step() {
  // The checkpoint at the end of an epoch follows the evaluation and belongs to the next epoch.
  std::optional<double> stall;
  if (!run_.epoch_done() && checkpointing_enabled() && !stop_.stops()) stall = save_if_due();
  recorder_.end_step();
  const double seconds = recorder_.steps().back().total();
  losses_.set_seconds(seconds);
  stop_.note_step(seconds);
  keep_report(stall.has_value());
  if (options_.log_every_steps > 0 && run_.position.step % options_.log_every_steps == 0) {
    if (step_->max_lead() == 0) average_losses();
    const auto point = progress_point();
    progress_->log(progress_line(point, progress_->seconds_left(point)));
  }
  progress_->update(progress_point());
  // Callbacks are not part of the step, nor of the next one.
  if (callbacks_.after_step({run_.position.step, run_.position.epoch,
                             losses_.newest().learning_rate, losses_.known_loss(), seconds},
                            stall)) {
    recorder_.pause();
  }
  callbacks_.note_saved(checkpointer_);
}

// Returns the seconds for which training has waited; nullopt if nothing was saved.
std::optional<double> TrainingRun::save_if_due() {
  const bool save = checkpointer_.due(run_.position, false);
  if (!save && !checkpointer_.copy_due(run_.position, false)) return std::nullopt;
  const auto span = recorder_.measure(Phase::checkpoint);
  const auto begin = profile::Clock::now();
  settle();
  average_losses();
  save ? checkpointer_.save(run_.position) : checkpointer_.copy(run_.position);
  return seconds_since(begin);
}

void TrainingRun::average_losses() {
  run_.add_losses(losses_.average(group_, data_ranks()));
}

ProgressPoint TrainingRun::progress_point() const {
  ProgressPoint point{run_.position.epoch, run_.epochs(), run_.position.step, run_.planned_steps()};
  const auto& steps = recorder_.steps();
  if (steps.empty()) return point;
  const std::size_t recent = std::min(steps.size(), kRecentSteps);
  double seconds = 0;
  for (std::size_t i = steps.size() - recent; i < steps.size(); ++i) seconds += steps[i].total();
  point.loss = losses_.newest_loss();
  point.learning_rate = losses_.newest().learning_rate;
  point.samples_per_second =
      static_cast<double>(recent) * static_cast<double>(sampler_.layout().global_batch()) / seconds;
  return point;
}

void TrainingRun::end_epoch() {
  callbacks_.tell_progress();
  average_losses();
  evaluate_now();
  if (stop_.stops()) return;
  reporter_->add_rows(losses_.take_averaged());
  reporter_->update_if_old(outcome_so_far());
  const auto point = progress_point();
  progress_->log(epoch_line(point, run_.epoch_loss(), evaluation_or_null(),
                            share_done_text(point, progress_->seconds_left(point))));
  if (evaluates()) {
    const bool best = run_.position.best.record(evaluation_, metric_);
    callbacks_.after_evaluation({run_.position.step, evaluation_, best});
  }
  callbacks_.after_epoch({run_.position.epoch, run_.position.step, run_.epoch_loss()});
  run_.position.begin_epoch(run_.position.epoch + 1);
  if (checkpointing_enabled()) {
    if (checkpointer_.due(run_.position, true) || checkpointer_.copy_due(run_.position, true))
      reporter_->keep_rows();
    if (evaluates()) {
      const auto span = reporter_->measure(RunReporter::WallPart::checkpoint);
      checkpointer_.save_best(run_.position, evaluation_);
    }
    if (checkpointer_.due(run_.position, true)) {
      save_after_step();
    } else if (checkpointer_.copy_due(run_.position, true)) {
      const auto begin = profile::Clock::now();
      checkpointer_.copy(run_.position);
      add_checkpoint_time(begin);
    }
  }
  recorder_.pause();
}

void TrainingRun::add_checkpoint_time(profile::Clock::time_point begin) {
  callbacks_.note_stall(seconds_since(begin));
  if (recorder_.steps().empty()) return;
  recorder_.add_to_last_step(Phase::checkpoint, {begin, profile::Clock::now()});
}

void TrainingRun::save_after_step() {
  const auto begin = profile::Clock::now();
  checkpointer_.save(run_.position);
  add_checkpoint_time(begin);
}

// Exit status 0, or 75 for a run that must be continued, guarantees that no training is lost. The
// report comes first: only here is a checkpoint committed after which nothing is left to train, and
// a process that resumes from it can complete a report, but not write one.
void TrainingRun::save_last() {
  reporter_->add_rows(losses_.take_averaged());
  reporter_->update_with_save(outcome_so_far());
  const auto begin = profile::Clock::now();
  checkpointer_.save_last(run_.position);
  add_checkpoint_time(begin);
  callbacks_.tell_progress();
  callbacks_.note_saved(checkpointer_);
}

void TrainingRun::evaluate_now(const std::function<void()>& then) {
  if (evaluated_step_ == run_.position.step) return;
  settle();
  evaluated_step_ = run_.position.step;
  if (!evaluates()) return;
  const auto span = reporter_->measure(RunReporter::WallPart::evaluation);
  group_.flight_recorder().set_phase(fmt::format("evaluation after step {}", run_.position.step));
  std::optional<WeightAverage::Use> averages;
  if (average_) averages.emplace(*average_);
  evaluate_present_weights();
  if (then) then();
  if (averages) averages->end();
}

void TrainingRun::evaluate_present_weights() {
  const auto& data = *task_.data.evaluation;
  const std::int64_t samples =
      options_.dry_run ? std::min(data.size(), group_.size() * options_.batch) : data.size();
  const auto evaluation = step_->evaluates()
                              ? step_->evaluate(data, samples, stop_.interruption())
                              : evaluate(group_, task_.module, objective_, data, samples,
                                         options_.batch, options_.precision, stop_.interruption());
  if (evaluation) {
    evaluation_ = *evaluation;
  } else {
    evaluated_step_ = -1;
  }
}

}  // namespace ddp::train
