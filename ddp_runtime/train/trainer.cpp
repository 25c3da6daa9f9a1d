#include "ddp_runtime/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/profile/chrome_trace.h"
#include "ddp_runtime/train/optimizer.h"

namespace ddp::train {
namespace {

using profile::Phase;

constexpr int kPrefetchedBatches = 4;
constexpr std::size_t kRecentSteps = 20;  // over which the shown rate is taken

data::BatchLayout layout_of(const comm::Group& group, const TrainOptions& options) {
  return {options.batch, options.micro_batches, group.rank(), group.size()};
}

nlohmann::json describe(const TrainTask& task, const TrainOptions& options,
                        const data::DistributedSampler& sampler) {
  return {{"model", task.model_name},
          {"data", task.data.name},
          {"optimizer", options.optimizer.name},
          {"global_batch", sampler.layout().global_batch()},
          {"seed", options.seed}};
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Ranks must not draw the same dropout masks, but each must draw its own again when repeated.
std::uint64_t generator_seed(std::uint64_t seed, int rank) {
  return seed * 1000003U + static_cast<std::uint64_t>(rank) + 1;
}

// Found out at the start, not after hours of training.
void require_report_directory(comm::Group& group, const std::filesystem::path& directory) {
  if (directory.empty()) return;
  std::string problem;
  if (group.rank() == 0) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) {
      problem = fmt::format("cannot create the report directory {}: {}", directory.string(),
                            error.message());
    }
  }
  problem = group.broadcast_text(problem, 0);
  if (!problem.empty()) throw UsageError(problem);
}

}  // namespace

Trainer::Trainer(comm::Group& group, TrainTask task, TrainOptions options)
    : group_(group),
      task_(std::move(task)),
      options_(std::move(options)),
      replica_(task_.module, group, options_.parallel),
      optimizer_(make_optimizer(task_.module.parameters(), options_.optimizer)),
      learning_rate_{options_.optimizer.learning_rate,
                     options_.scale_learning_rate
                         ? static_cast<double>(group.size() * options_.micro_batches)
                         : 1.0,
                     options_.warmup_steps},
      sampler_(task_.data.train->size(), options_.seed, layout_of(group, options_)),
      state_(replica_, *optimizer_),
      checkpointer_(group, state_, options_.checkpoint, describe(task_, options_, sampler_)) {
  require_report_directory(group_, options_.report_directory);
  torch::manual_seed(generator_seed(options_.seed, group_.rank()));
}

bool Trainer::epoch_done() const {
  return position_.consumed + sampler_.layout().global_batch() > task_.data.train->size();
}

// Counted from where the run stands, since a resumed run may have another global batch.
std::int64_t Trainer::planned_steps() const {
  const std::int64_t batch = sampler_.layout().global_batch();
  const std::int64_t size = task_.data.train->size();
  const std::int64_t epochs_left = options_.epochs - position_.epoch;
  if (epochs_left <= 0) return position_.step;
  const std::int64_t planned =
      position_.step + (size - position_.consumed) / batch + (epochs_left - 1) * (size / batch);
  return options_.steps > 0 ? std::min(options_.steps, planned) : planned;
}

RunResult Trainer::fit() {
  started_unix_ = unix_now();
  if (const auto resumed = checkpointer_.resume(generator_seed(options_.seed, group_.rank()))) {
    position_ = *resumed;
  }
  first_step_ = position_.step;
  progress_ = std::make_unique<Progress>(group_.rank() == 0, first_step_);
  while (position_.epoch < options_.epochs && position_.step < planned_steps()) run_epoch();
  return finish();
}

void Trainer::run_epoch() {
  sampler_.set_epoch(position_.epoch, position_.consumed);
  const std::int64_t steps = std::min(sampler_.steps_left(), planned_steps() - position_.step);
  {
    data::Prefetcher batches(
        steps * options_.micro_batches,
        [this](std::int64_t number) {
          return task_.data.train->get(
              sampler_.indices(number / options_.micro_batches, number % options_.micro_batches));
        },
        options_.loader_threads, kPrefetchedBatches);
    for (std::int64_t step = 0; step < steps; ++step) {
      recorder_.begin_step();
      const double rate = learning_rate_.at(position_.step);
      const double loss = run_step(batches);
      position_.consumed = sampler_.consumed_after(step + 1);
      ++position_.step;
      losses_.push_back({position_.step, position_.epoch, loss, rate, 0});
      finish_step();
    }
  }
  if (epoch_done()) end_epoch();
}

torch::Tensor Trainer::loss_of(const data::Batch& batch) {
  const amp::AutocastGuard autocast(torch::kCPU, options_.precision);
  const auto scores = task_.forward(batch.inputs).to(torch::kFloat32);
  return torch::nn::functional::cross_entropy(scores, batch.targets);
}

// Returns this rank's loss.
double Trainer::run_step(data::Prefetcher& batches) {
  set_learning_rate(*optimizer_, learning_rate_.at(position_.step));
  group_.activity().set_phase(
      fmt::format("epoch {}, step {}", position_.epoch + 1, position_.step + 1));
  auto step = replica_.begin_step(static_cast<int>(options_.micro_batches), position_.consumed);
  double loss_sum = 0;
  while (!step.complete()) {
    data::Batch batch;
    {
      const auto span = recorder_.measure(Phase::data);
      batch = batches.next();
    }
    torch::Tensor loss;
    {
      const auto span = recorder_.measure(Phase::forward);
      loss = loss_of(batch);
      loss_sum += loss.item<double>();
    }
    step.backward(loss);
    recorder_.add(Phase::backward, replica_.times().backward);
    recorder_.add(Phase::exposed_comm, replica_.times().exposed);
  }
  recorder_.add_communication(replica_.communication(), replica_.times().backward);
  const auto span = recorder_.measure(Phase::optimizer);
  if (options_.clip_norm > 0) {
    torch::nn::utils::clip_grad_norm_(task_.module.parameters(), options_.clip_norm);
  }
  step.apply(*optimizer_);
  return loss_sum / static_cast<double>(options_.micro_batches);
}

void Trainer::finish_step() {
  // At the end of an epoch the checkpoint comes after the evaluation and belongs to the next epoch.
  if (!epoch_done() && checkpointer_.due(position_.step, false)) {
    const auto span = recorder_.measure(Phase::checkpoint);
    reduce_losses();
    checkpointer_.save(position_);
  }
  recorder_.end_step();
  losses_.back().seconds = recorder_.steps().back().total();
  if (options_.log_every_steps > 0 && position_.step % options_.log_every_steps == 0) {
    reduce_losses();
    const auto point = progress_point();
    progress_->log(progress_line(point, progress_->seconds_left(point)));
  }
  progress_->update(progress_point());
}

// Losses are kept per rank and averaged over the ranks only when somebody looks at them: a
// collective in every step for a number in a log would cost more than it tells.
void Trainer::reduce_losses() {
  const std::size_t count = losses_.size() - reduced_losses_;
  if (count == 0) return;
  std::vector<double> values;
  for (std::size_t i = reduced_losses_; i < losses_.size(); ++i) values.push_back(losses_[i].loss);
  group_.all_reduce(comm::buffer_of(std::span(values)), comm::ReduceOp::sum, "losses").wait();
  for (std::size_t i = 0; i < count; ++i) {
    losses_[reduced_losses_ + i].loss = values[i] / group_.size();
    position_.loss_sum += values[i] / group_.size();
  }
  position_.loss_steps += static_cast<std::int64_t>(count);
  reduced_losses_ = losses_.size();
  if (position_.loss_steps > 0) {
    epoch_loss_ = position_.loss_sum / static_cast<double>(position_.loss_steps);
  }
}

ProgressPoint Trainer::progress_point() const {
  ProgressPoint point{position_.epoch, options_.epochs, position_.step, planned_steps()};
  const auto& steps = recorder_.steps();
  if (steps.empty()) return point;
  const std::size_t recent = std::min(steps.size(), kRecentSteps);
  double seconds = 0;
  for (std::size_t i = steps.size() - recent; i < steps.size(); ++i) seconds += steps[i].total();
  point.loss = losses_.back().loss;
  point.learning_rate = losses_.back().learning_rate;
  point.samples_per_second =
      static_cast<double>(recent) * static_cast<double>(sampler_.layout().global_batch()) / seconds;
  return point;
}

void Trainer::end_epoch() {
  reduce_losses();
  evaluate_now();
  progress_->log(
      fmt::format("epoch {}/{}  step {}  train loss {:.4f}  eval loss {:.4f}  accuracy {:.4f}  "
                  "{:.0f} samples/s",
                  position_.epoch + 1, options_.epochs, position_.step, epoch_loss_,
                  evaluation_.loss, evaluation_.accuracy, progress_point().samples_per_second));
  position_ = {position_.epoch + 1, 0, position_.step, 0, 0};
  if (checkpointer_.due(position_.step, true)) save_after_step();
  recorder_.pause();
}

void Trainer::save_after_step() {
  const auto begin = profile::Clock::now();
  checkpointer_.save(position_);
  if (!recorder_.steps().empty()) {
    recorder_.add_to_last_step(Phase::checkpoint, {begin, profile::Clock::now()});
  }
}

void Trainer::evaluate_now() {
  if (evaluated_step_ == position_.step) return;
  group_.activity().set_phase(fmt::format("evaluation after step {}", position_.step));
  evaluation_ = evaluate(group_, task_.module, task_.forward, *task_.data.evaluation,
                         options_.batch, options_.precision);
  evaluated_step_ = position_.step;
}

RunResult Trainer::finish() {
  reduce_losses();
  evaluate_now();
  // A run that was told to stop within an epoch keeps its last steps, too.
  if (checkpointer_.enabled() && position_.step > checkpointer_.last_saved_step()) {
    save_after_step();
  }
  progress_.reset();

  const auto crc = parameters_crc32c(named_parameters(task_.module));
  const RunFacts facts{task_.program,
                       task_.command,
                       task_.model_name,
                       task_.data.name,
                       models::parameter_count(task_.module),
                       sampler_.layout().global_batch(),
                       options_.epochs,
                       started_unix_};
  const RunOutcome outcome{position_.step - first_step_, epoch_loss_, evaluation_, crc};
  const auto report = make_run_report(group_, facts, outcome, recorder_.steps());
  RunResult result{position_.step,         evaluation_, epoch_loss_, crc,
                   checkpointer_.newest(), {},          report};
  if (group_.rank() == 0 && !options_.report_directory.empty()) {
    write_run_files(options_.report_directory, report, losses_,
                    profile::chrome_trace(recorder_.recent_events(), group_.rank()));
    result.report_file = options_.report_directory / "run.json";
  }
  return result;
}

}  // namespace ddp::train
