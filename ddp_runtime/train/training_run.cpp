// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/sharded/sharded_build.h"
#include "ddp_runtime/train/batch_transfer.h"
#include "ddp_runtime/train/channels_last.h"
#include "ddp_runtime/train/divided_parameters.h"
#include "ddp_runtime/train/gpu_advice.h"
#include "ddp_runtime/train/module_device.h"
#include "ddp_runtime/train/run_description.h"
#include "ddp_runtime/train/run_lines.h"
#include "ddp_runtime/train/run_log.h"
#include "ddp_runtime/train/run_start.h"
#include "ddp_runtime/train/starting_point.h"
#include "ddp_runtime/train/training_sizes.h"

namespace ddp::train {
namespace {

using profile::Phase;

constexpr int kPrefetchedBatches = 4;     // or one for each loader thread, if there are more
constexpr std::size_t kRecentSteps = 20;  // for the displayed rate

data::BatchLayout layout_of(const comm::Group& group, const TrainOptions& options) {
  return {options.batch, options.micro_batches, group.rank(), group.size()};
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
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
      step_(make_training_step(group, task_.module, objective_, options_, recorder_,
                               {task_.optimizer, std::move(graph_.graph), task_.log})),
      learning_rate_(
          learning_rate_of(options_, group.size(), GroupRates(step_->optimizer()).base())),
      sampler_(task_.data.train->size(), options_.seed, layout_of(group, options_)),
      average_(make_average()),
      state_(group, task_.module, step_->optimizer(), step_->replica(), task_.user_state),
      checkpointer_(group, state_, options_.checkpoint,
                    describe_run(subject_, task_, options_, sampler_.layout()), task_.log),
      callbacks_(group, task_.callbacks) {
  require_evaluation(task_, options_);
  require_report_directory(group_, options_.report_directory);
  torch::manual_seed(generator_seed(options_.seed, group_.rank()));
}

// Begins with the weights that all ranks have, and adds itself to the state that is saved.
std::unique_ptr<WeightAverage> TrainingRun::make_average() {
  if (options_.ema_decay == 0) return nullptr;
  auto average =
      std::make_unique<WeightAverage>(task_.module, options_.ema_decay, step_->replica());
  average->save_in(task_.user_state);
  return average;
}

bool TrainingRun::epoch_done() const {
  return position_.consumed + sampler_.layout().global_batch() > task_.data.train->size();
}

EpochSize TrainingRun::epoch_size() const {
  return {task_.data.train->size(), sampler_.layout().global_batch()};
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
    RunLog(task_.log).line(fmt::format("initial weights: {} is not read, because the run resumes",
                                       task_.initial_weights->source.string()));
  }
  return true;
}

void TrainingRun::initialize() {
  if (!task_.initial_weights) return;
  const auto& weights = *task_.initial_weights;
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
                   lead_seconds(longest_step_, checkpointer_.longest_save_seconds()),
                   checkpointer_.time_to_save());
}

// Completes the agreement once even the slowest rank must have started its part, so that a rank
// that is ahead does not wait for it. Completes it before a save at the latest, because the answer
// would not cover that save's writing.
void TrainingRun::end_agreement(bool last_of_epoch) {
  if (!asked_at_step_) return;
  const bool all_asked = position_.step - *asked_at_step_ > step_->max_lead();
  if (!all_asked && !last_of_epoch && !checkpointer_.due(position_, false)) return;
  asked_at_step_.reset();
  const auto agreed = boundary_->end();
  interrupted_ = agreed.stop;
  checkpointer_.poll(agreed.writing);
  if (agreed.save) checkpointer_.request_save();
}

bool TrainingRun::should_continue() const {
  return interrupted_.empty() && !callbacks_.stop_wanted() && position_.epoch < epochs_ &&
         position_.step < last_step() && !best().exhausted(options_.patience);
}

RunResult TrainingRun::fit() {
  started_unix_ = unix_now();
  if (checkpointing_enabled()) {
    boundary_.emplace(group_);
    if (group_.rank() == 0) boundary_->set_deadline(job_deadline());
  }
  const bool resumed = !options_.dry_run && resume();
  if (!resumed) initialize();
  epochs_ = epochs_of_run({options_.epochs, options_.steps}, epoch_size(), reached());
  first_step_ = position_.step;
  learning_rate_.total_steps = planned_steps();
  progress_ = std::make_unique<Progress>(group_.rank() == 0, first_step_, task_.log);
  prediction_ = predict_shards(task_.module, step_->optimizer(), options_, group_.size(),
                               count_machines(group_));
  reporter_ = make_reporter();
  if (!graph_.hindrance.empty()) {
    progress_->log(fmt::format("graph: steps run eagerly, because {}", graph_.hindrance));
  }
  device_memory_ ? device_memory_->begin() : memory_.begin();
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

// Keeps the newest row, because the progress display shows it.
void TrainingRun::keep_report() {
  const bool due = reporter_->after_step();
  if (due) average_losses();
  reporter_->add_rows(losses_.take_averaged_before_newest());
  if (due) reporter_->update(outcome_so_far());
}

void TrainingRun::run_epoch() {
  sampler_.set_epoch(position_.epoch, position_.consumed);
  const std::int64_t steps = std::min(sampler_.steps_left(), last_step() - position_.step);
  {
    const auto device = device_of(task_.module);
    data::Prefetcher batches(
        steps * options_.micro_batches,
        [this, device](std::int64_t number) {
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
  if (!task_.schedule) return learning_rate_.at(position_.step, position_.epoch);
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
  if (!epoch_done() && checkpointing_enabled() && interrupted_.empty() &&
      checkpointer_.due(position_, false)) {
    const auto span = recorder_.measure(Phase::checkpoint);
    settle();
    average_losses();
    checkpointer_.save(position_);
  }
  recorder_.end_step();
  const double seconds = recorder_.steps().back().total();
  losses_.set_seconds(seconds);
  longest_step_ = std::max(longest_step_, seconds);
  keep_report();
  if (options_.log_every_steps > 0 && position_.step % options_.log_every_steps == 0) {
    if (step_->max_lead() == 0) average_losses();
    const auto point = progress_point();
    progress_->log(progress_line(point, progress_->seconds_left(point)));
  }
  progress_->update(progress_point());
  // Callbacks are not part of the step, nor of the next one.
  if (callbacks_.after_step({position_.step, position_.epoch, losses_.newest().learning_rate,
                             losses_.known_loss(), seconds})) {
    recorder_.pause();
  }
  callbacks_.note_saved(checkpointer_);
}

void TrainingRun::average_losses() {
  const auto means = losses_.average(group_);
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
  average_losses();
  evaluate_now();
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
    if (evaluates()) {
      const auto span = reporter_->measure(RunReporter::WallPart::checkpoint);
      checkpointer_.save_best(position_, evaluation_);
    }
    if (checkpointer_.due(position_, true)) save_after_step();
  }
  recorder_.pause();
}

void TrainingRun::add_checkpoint_time(profile::Clock::time_point begin) {
  if (recorder_.steps().empty()) return;
  recorder_.add_to_last_step(Phase::checkpoint, {begin, profile::Clock::now()});
}

void TrainingRun::save_after_step() {
  const auto begin = profile::Clock::now();
  checkpointer_.save(position_);
  add_checkpoint_time(begin);
}

// Exit status 0, or 75 for a run that must be continued, guarantees that no training is lost.
void TrainingRun::save_last() {
  const auto begin = profile::Clock::now();
  checkpointer_.save_last(position_);
  add_checkpoint_time(begin);
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
  evaluation_ =
      evaluate(group_, task_.module, objective_, data, samples, options_.batch, options_.precision);
  if (averages) averages->end();
}

// The parts of the result that are known however the run ends.
RunResult TrainingRun::result_so_far() const {
  RunResult result;
  result.step = position_.step;
  result.taken = position_.step - first_step_;
  result.evaluation = evaluation_;
  result.train_loss = epoch_loss_;
  result.planned_steps = learning_rate_.total_steps;
  result.checkpoint = checkpointer_.newest();
  result.best_checkpoint = checkpointer_.best();
  return result;
}

// `report` is null on all ranks but rank 0.
void TrainingRun::add_report(RunResult& result, const nlohmann::json& report) const {
  result.report_file = reporter_->file();
  if (report.is_null()) return;
  result.report = report.dump();
  result.median_step_seconds = report.at("step_seconds").at("p50").get<double>();
  for (const auto& rank : report.at("ranks")) {
    result.peak_memory_bytes =
        std::max(result.peak_memory_bytes, rank.at("peak_memory_bytes").get<std::int64_t>());
  }
}

// Collective, unless there is nothing to compare it with. Of the rank with the most.
std::optional<std::int64_t> TrainingRun::measured_peak() {
  if (!prediction_) return std::nullopt;
  constexpr std::int64_t kUnknown = -1;
  const auto mine = device_memory_ ? device_memory_->peak() : memory_.peak();
  const auto peak = group_.all_reduce_value(mine.value_or(kUnknown), comm::ReduceOp::max);
  return peak == kUnknown ? std::nullopt : std::optional(peak);
}

// Null if there is nothing to add.
nlohmann::json TrainingRun::more_of_report(std::optional<std::int64_t> measured_peak) const {
  nlohmann::json more;
  if (prediction_) more["sharding"] = sharding_of_report(*prediction_, measured_peak);
  if (options_.graph.mode == GraphMode::off) return more;
  more["graph"] = step_->replays() > 0;
  more["graph_steps"] = step_->replays();
  return more;
}

std::uint32_t TrainingRun::parameters_crc32c_now() {
  auto* const replica = step_->replica();
  const DividedParameters divided(std::span(&replica, 1));
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
  interrupted.interrupted = interrupted_;
  interrupted.evaluation = {};  // could be from an earlier step
  const auto more = more_of_report(measured_peak());
  add_report(interrupted, reporter_->finish(outcome_so_far(), RunReporter::Ending::interrupted,
                                            interrupted_, more));
  return interrupted;
}

// The resumed run was already finished. Its report is worth more than a report about this process,
// which trained nothing.
RunResult TrainingRun::finish_without_steps() {
  // A process that was stopped in the last step of an epoch did not evaluate or save the best.
  if (position_.epoch < epochs_ && position_.consumed > 0 && epoch_done()) end_epoch();
  evaluate_now();
  if (checkpointing_enabled()) {
    keep_starting_point(group_, checkpointer_, position_, options_.checkpoint.directory,
                        *progress_);
    checkpointer_.remove_local_saves(position_.step);
  }
  auto ended = result_so_far();
  ended.stopped_early = best().exhausted(options_.patience);
  ended.parameters_crc32c = parameters_crc32c_now();
  progress_->log(nothing_to_do_line(position_.step, ended.stopped_early, evaluation_or_null(),
                                    ended.parameters_crc32c));
  progress_.reset();
  step_->finish();
  return ended;
}

RunResult TrainingRun::finish() {
  average_losses();
  evaluate_now();
  if (auto* const replica = step_->replica()) replica->require_same_parameters();
  // A run that must stop within an epoch keeps its last steps, too.
  if (checkpointing_enabled()) save_last();
  auto ended = result_so_far();
  ended.stopped_early = callbacks_.stop_wanted() || best().exhausted(options_.patience);
  if (callbacks_.stop_wanted()) {
    progress_->log(stopped_by_callback_line(position_.epoch));
  } else if (ended.stopped_early) {
    progress_->log(no_better_line(best(), metric_));
  }
  progress_.reset();
  ended.parameters_crc32c = parameters_crc32c_now();

  auto outcome = outcome_so_far();
  if (evaluates()) outcome.evaluation = evaluation_;
  outcome.parameters_crc32c = ended.parameters_crc32c;
  const auto measured = measured_peak();
  auto more = more_of_report(measured);
  if (options_.dry_run && prediction_) ended.strategies = strategy_table(*prediction_, measured);
  const auto asynchronous = step_->finish();
  if (!asynchronous.is_null()) more["asynchronous"] = asynchronous;
  reporter_->add_rows(losses_.take_averaged());
  add_report(ended, reporter_->finish(outcome, RunReporter::Ending::finished, "", more));
  return ended;
}

}  // namespace ddp::train
