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
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
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

// A ShardedBuild keeps a part of a parameter on each rank.
std::int64_t bytes_on(torch::DeviceType device, const torch::nn::Module& module, int ranks) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : named_parameters(module)) {
    if (tensor.device().type() != device) continue;
    bytes += static_cast<std::int64_t>(tensor.nbytes()) / (is_without_memory(tensor) ? ranks : 1);
  }
  return bytes;
}

std::optional<DeviceMemory> device_memory_for(const comm::Group& group,
                                              const torch::nn::Module& module) {
  const auto device = device_of(module);
  if (device.is_cpu()) return std::nullopt;
  return DeviceMemory(group, device, bytes_on(device.type(), module, group.size()));
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
      memory_(bytes_on(torch::kCPU, task_.module, group.size())),
      device_memory_(device_memory_for(group, task_.module)),
      subject_(describe_subject(task_)),
      options_(same_on_all_ranks(group, subject_, std::move(options))),
      metric_(parse_best_metric(options_.checkpoint.best_metric)),
      graph_(plan_graph(device_of(task_.module), graph_task_of(task_, group.size()), options_)),
      objective_(objective_of(task_, options_)),
      stream_(stream_for(graph_, device_of(task_.module))),
      step_(make_training_step(
          group, task_.module, objective_, options_, recorder_,
          {task_.optimizer, std::move(graph_.graph), task_.log, task_.staged.get()})),
      learning_rate_(
          learning_rate_of(options_, data_ranks(), GroupRates(step_->optimizer()).base())),
      sampler_(task_.data.train->size(), options_.seed, layout_of(group, options_)),
      average_(make_average()),
      state_(group, task_.module, step_->optimizer(), step_->replica(), task_.user_state,
             step_->rank_state(), residence()),
      checkpointer_(group, state_, checkpoint_options(), description(), task_.log),
      callbacks_(group, task_.callbacks) {
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

bool TrainingRun::epoch_done() const {
  return position_.consumed + sampler_.layout().global_batch() > task_.data.train->size();
}

EpochSize TrainingRun::epoch_size() const {
  return {task_.data.train->size(), sampler_.layout().global_batch()};
}

// That of the batch with which the run began, for its schedule.
EpochSize TrainingRun::first_epoch_size() const {
  return {task_.data.train->size(), position_.first_batch};
}

Reached TrainingRun::reached() const {
  return {position_.epoch, position_.consumed, position_.step};
}

std::int64_t TrainingRun::planned_steps() const {
  return train::planned_steps({epochs_, options_.steps}, epoch_size(), reached());
}

// A dry run trains one of these steps.
std::int64_t TrainingRun::last_step() const {
  return options_.dry_run ? std::min<std::int64_t>(planned_steps(), 1) : planned_steps();
}

bool TrainingRun::checkpointing_enabled() const {
  return checkpointer_.enabled() && !options_.dry_run;
}

// Returns false if there is nothing to resume from.
bool TrainingRun::resume() {
  const auto resumed = checkpointer_.resume(generator_seed(options_.seed, group_.rank()));
  callbacks_.begin_after(checkpointer_);
  if (!resumed) return false;
  position_ = *resumed;
  auto* const scaler = step_->scaler();
  if (scaler != nullptr && position_.loss_scale.scale > 0) scaler->restore(position_.loss_scale);
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

// From here on a stop signal triggers a checkpoint first.
void TrainingRun::begin_agreement() {
  if (!boundary_ || asked_at_step_) return;
  asked_at_step_ = position_.step;
  boundary_->begin(checkpointer_.writing(),
                   lead_seconds(longest_step_ * static_cast<double>(1 + step_->max_lead()),
                                checkpointer_.longest_save_seconds()),
                   checkpointer_.time_to_save(),
                   {checkpointer_.copying(), checkpointer_.time_to_copy()});
}

// Completes the agreement once even the slowest rank must have started its part, so that a rank
// that is ahead does not wait for it. Completes it before a save at the latest, because the answer
// would not cover that save's writing.
void TrainingRun::end_agreement(bool last_of_epoch) {
  if (!asked_at_step_) return;
  const bool all_asked = position_.step - *asked_at_step_ > step_->max_lead();
  const bool due = checkpointer_.due(position_, false) || checkpointer_.copy_due(position_, false);
  if (!all_asked && !last_of_epoch && !due) return;
  asked_at_step_.reset();
  const auto agreed = boundary_->end();
  interrupted_ = agreed.stop;
  checkpointer_.poll(agreed.writing, agreed.copying);
  if (agreed.save) checkpointer_.request_save();
  if (agreed.copy) checkpointer_.request_copy();
}

bool TrainingRun::should_continue() const {
  return interrupted_.empty() && !callbacks_.stop_wanted() && position_.epoch < epochs_ &&
         position_.step < last_step() && !best().exhausted(options_.patience);
}

RunResult TrainingRun::fit() {
  if (comm::started_to_save() && !options_.dry_run) return only_save();
  started_unix_ = unix_seconds();
  if (checkpointing_enabled()) {
    boundary_.emplace(group_);
    if (group_.rank() == 0) watch_job_end();
  }
  if (checkpointing_enabled() && group_.rank() == 0) comm::tell_restoring();
  const bool resumed = !options_.dry_run && resume();
  resumed ? begin_at(position_.step) : initialize();
  if (position_.first_batch == 0) position_.first_batch = epoch_size().global_batch;
  epochs_ = epochs_of_run({options_.epochs, options_.steps}, epoch_size(), reached());
  first_step_ = position_.step;
  learning_rate_.total_steps = planned_steps();
  progress_ = std::make_unique<Progress>(group_.rank() == 0, first_step_, task_.log);
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
    const auto why = why_schedule_is_cut({options_.epochs, options_.steps}, first_epoch_size(),
                                         epoch_size(), reached());
    if (!why.empty()) progress_->log(why);
  }
  device_memory_ ? device_memory_->begin() : memory_.begin();
  callbacks_.begin_after_step(first_step_);
  try {
    return run_epochs();
  } catch (const std::exception& error) {
    reporter_->failed(outcome_so_far(), error.what());
    throw;
  }
}

void TrainingRun::watch_job_end() {
  const auto end = job_end();
  boundary_->set_deadline(end.deadline);
  if (!end.problem.empty()) RunLog(task_.log).line("checkpoint: " + end.problem);
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
  return interrupted_.empty() ? finish() : finish_interrupted();
}

std::unique_ptr<RunReporter> TrainingRun::make_reporter() {
  RunFacts facts{task_.program,
                 task_.command,
                 task_.model_name,
                 task_.data.name,
                 models::parameter_count(task_.module),
                 sampler_.layout().global_batch(),
                 epochs_,
                 started_unix_,
                 torch::get_num_threads(),
                 describe_settings(task_, options_),
                 c10::DeviceTypeName(device_of(task_.module).type(), /*lower_case=*/true),
                 prediction_ ? sharding_of_report(*prediction_, std::nullopt) : nullptr};
  ReportTarget target{options_.dry_run ? std::filesystem::path() : options_.report_directory,
                      first_step_};
  return std::make_unique<RunReporter>(group_, std::move(facts), std::move(target), recorder_,
                                       step_->max_lead() == 0, task_.log);
}

RunOutcome TrainingRun::outcome_so_far() const {
  return {position_.step - first_step_, epoch_loss_, std::nullopt, std::nullopt,
          position_.best.loss.cost};
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
  sampler_.set_epoch(position_.epoch, position_.consumed);
  const std::int64_t steps = std::min(sampler_.steps_left(), last_step() - position_.step);
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
    for (std::int64_t step = 0; step < steps && interrupted_.empty(); ++step) {
      recorder_.begin_step();
      begin_agreement();
      run_step(batches, next_learning_rate());
      position_.consumed = sampler_.consumed_after(step + 1);
      end_agreement(step + 1 == steps);
      finish_step();
    }
  }
  if (epoch_done() && interrupted_.empty()) end_epoch();
}

double TrainingRun::next_learning_rate() const {
  if (!task_.schedule) {
    LearningRate rate = learning_rate_;
    const auto scheduled =
        scheduled_step({options_.epochs, options_.steps}, first_epoch_size(), reached());
    rate.total_steps = scheduled.total;
    return rate.at(scheduled.done, position_.epoch);
  }
  const double factor =
      task_.schedule({position_.step, position_.epoch, learning_rate_.total_steps});
  if (!std::isfinite(factor) || factor < 0) {
    throw UsageError(fmt::format(
        "the task's schedule returned {} for step {}; it must be a number that is 0 or more",
        factor, position_.step));
  }
  return learning_rate_.base * learning_rate_.scale * factor;
}

void TrainingRun::run_step(data::Prefetcher& batches, double learning_rate) {
  group_.flight_recorder().set_phase(
      fmt::format("epoch {}, step {}", position_.epoch + 1, position_.step + 1));
  auto outcome = step_->run(batches, learning_rate, position_.consumed);
  state_.replace_replica(step_->replica());
  ++position_.step;
  if (average_) {
    const auto span = recorder_.measure(Phase::optimizer);
    average_->update(position_.step);
  }
  losses_.add({.step = position_.step, .epoch = position_.epoch, .learning_rate = learning_rate},
              std::move(outcome.loss));
  note_skipped_updates();
  for (const auto& note : step_->take_notes()) progress_->log(note);
}

void TrainingRun::note_skipped_updates() {
  if (const auto* scaler = step_->scaler()) position_.loss_scale = scaler->state();
  for (const auto& update : step_->take_skipped()) {
    progress_->log(
        fmt::format("step {}: update skipped: {}", first_step_ + update.step, update.why));
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
  if (!epoch_done() && checkpointing_enabled() && interrupted_.empty()) stall = save_if_due();
  recorder_.end_step();
  const double seconds = recorder_.steps().back().total();
  losses_.set_seconds(seconds);
  longest_step_ = std::max(longest_step_, seconds);
  keep_report(stall.has_value());
  if (options_.log_every_steps > 0 && position_.step % options_.log_every_steps == 0) {
    if (step_->max_lead() == 0) average_losses();
    const auto point = progress_point();
    progress_->log(progress_line(point, progress_->seconds_left(point)));
  }
  progress_->update(progress_point());
  // Callbacks are not part of the step, nor of the next one.
  if (callbacks_.after_step({position_.step, position_.epoch, losses_.newest().learning_rate,
                             losses_.known_loss(), seconds},
                            stall)) {
    recorder_.pause();
  }
  callbacks_.note_saved(checkpointer_);
}

// Returns the seconds for which training has waited; nullopt if nothing was saved.
std::optional<double> TrainingRun::save_if_due() {
  const bool save = checkpointer_.due(position_, false);
  if (!save && !checkpointer_.copy_due(position_, false)) return std::nullopt;
  const auto span = recorder_.measure(Phase::checkpoint);
  const auto begin = profile::Clock::now();
  settle();
  average_losses();
  save ? checkpointer_.save(position_) : checkpointer_.copy(position_);
  return seconds_since(begin);
}

void TrainingRun::average_losses() {
  const auto means = losses_.average(group_, data_ranks());
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;  // a skipped step
    position_.loss_sum += mean;
    ++position_.loss_steps;
  }
  if (position_.loss_steps > 0) {
    epoch_loss_ = position_.loss_sum / static_cast<double>(position_.loss_steps);
  }
}

ProgressPoint TrainingRun::progress_point() const {
  ProgressPoint point{position_.epoch, epochs_, position_.step, planned_steps()};
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
  if (!interrupted_.empty()) return;
  reporter_->add_rows(losses_.take_averaged());
  reporter_->update_if_old(outcome_so_far());
  const auto point = progress_point();
  progress_->log(epoch_line(point, epoch_loss_, evaluation_or_null(),
                            share_done_text(point, progress_->seconds_left(point))));
  if (evaluates()) {
    const bool best = position_.best.record(evaluation_, metric_);
    callbacks_.after_evaluation({position_.step, evaluation_, best});
  }
  callbacks_.after_epoch({position_.epoch, position_.step, epoch_loss_});
  position_.begin_epoch(position_.epoch + 1);
  if (checkpointing_enabled()) {
    if (checkpointer_.due(position_, true) || checkpointer_.copy_due(position_, true))
      reporter_->keep_rows();
    if (evaluates()) {
      const auto span = reporter_->measure(RunReporter::WallPart::checkpoint);
      checkpointer_.save_best(position_, evaluation_);
    }
    if (checkpointer_.due(position_, true)) {
      save_after_step();
    } else if (checkpointer_.copy_due(position_, true)) {
      const auto begin = profile::Clock::now();
      checkpointer_.copy(position_);
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
  checkpointer_.save(position_);
  add_checkpoint_time(begin);
}

// Exit status 0, or 75 for a run that must be continued, guarantees that no training is lost. The
// report comes first: only here is a checkpoint committed after which nothing is left to train, and
// a process that resumes from it can complete a report, but not write one.
void TrainingRun::save_last() {
  reporter_->add_rows(losses_.take_averaged());
  reporter_->update_with_save(outcome_so_far());
  const auto begin = profile::Clock::now();
  checkpointer_.save_last(position_);
  add_checkpoint_time(begin);
  callbacks_.tell_progress();
  callbacks_.note_saved(checkpointer_);
}

void TrainingRun::evaluate_now() {
  if (evaluated_step_ == position_.step) return;
  settle();
  evaluated_step_ = position_.step;
  if (!evaluates()) return;
  const auto span = reporter_->measure(RunReporter::WallPart::evaluation);
  group_.flight_recorder().set_phase(fmt::format("evaluation after step {}", position_.step));
  std::optional<WeightAverage::Use> averages;
  if (average_) averages.emplace(*average_);
  const auto& data = *task_.data.evaluation;
  const std::int64_t samples =
      options_.dry_run ? std::min(data.size(), group_.size() * options_.batch) : data.size();
  const auto evaluation = step_->evaluates()
                              ? step_->evaluate(data, samples, interruption())
                              : evaluate(group_, task_.module, objective_, data, samples,
                                         options_.batch, options_.precision, interruption());
  if (averages) averages->end();
  if (evaluation) {
    evaluation_ = *evaluation;
  } else {
    evaluated_step_ = -1;
  }
}

// A stop signal, or the end of the job's time, ends an evaluation: the state is saved before SLURM
// kills the job, and the next process evaluates.
Interruption TrainingRun::interruption() {
  if (!boundary_) return {[] {}, [] { return false; }};
  const auto ask = [this] {
    boundary_->begin(checkpointer_.writing(),
                     lead_seconds(longest_step_, checkpointer_.longest_save_seconds()));
  };
  const auto answer = [this] {
    interrupted_ = boundary_->end().stop;
    return !interrupted_.empty();
  };
  return {ask, answer};
}

}  // namespace ddp::train
