// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/pipelined_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/amp/grad_scaler.h"
#include "ddp_runtime/data/batch_transfer.h"
#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/train/step/forward_pass.h"
#include "ddp_runtime/train/step/loss_scaling.h"

namespace ddp::train {
namespace {

using profile::Clock;
using profile::Phase;

// The ranks in the order that a pipeline expects: those with the same stages follow each other. See
// Note [Places in pipelines].
comm::Group& ordered(comm::Group& group, const StageOptions& stages) {
  const int replicas = stages.replicas(group.size());
  if (replicas == 1) return group;
  const int rank = group.rank();
  return *group.split(0, stages.place(rank) * replicas + stages.replica(rank), "pipelines");
}

comm::Group* ranks_with_the_same_stages(comm::Group& group, const StageOptions& stages) {
  if (stages.replicas(group.size()) == 1) return nullptr;
  return group.split(stages.place(group.rank()), group.rank(), "buffers of stages");
}

pipeline::PipelineOptions pipeline_options(const TrainOptions& options, const StagedModel& staged,
                                           int ranks, torch::Device device) {
  pipeline::PipelineOptions pipe;
  pipe.schedule = options.stages.schedule;
  pipe.replicas = options.stages.replicas(ranks);
  pipe.tied = staged.tied();
  pipe.device = device;
  pipe.data_parallel = options.parallel;
  pipe.data_parallel.check_parameters_every = 0;
  // A run that resumes must have the buckets of one that did not stop.
  pipe.data_parallel.rebuild_buckets = false;
  if (options.on_nan == OnNan::skip) pipe.data_parallel.check_loss = false;
  return pipe;
}

// The parameters of several modules, as those of one.
class AllOf final : public torch::nn::Module {
 public:
  explicit AllOf(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
    for (std::size_t i = 0; i < modules.size(); ++i) register_module(std::to_string(i), modules[i]);
  }
};

std::unique_ptr<torch::optim::Optimizer> optimizer_of(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules, const TrainOptions& options,
    int rank) {
  const auto all = std::make_shared<AllOf>(modules);
  const auto groups = decay_groups(*all);
  if (groups.decayed.empty() && groups.free.empty()) {
    throw UsageError(
        fmt::format("all parameters of the stage of rank {} are frozen; train some, or choose a "
                    "--stage-balance "
                    "that gives it others",
                    rank));
  }
  return make_optimizer(*all, options.optimizer);
}

// Each once, even if stages of this rank have it in common.
std::vector<torch::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<torch::Tensor> all;
  for (const auto& group : optimizer.param_groups()) {
    all.insert(all.end(), group.params().begin(), group.params().end());
  }
  return all;
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

Clock::time_point after(Clock::time_point begin, double seconds) {
  return begin +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

PipelinedStep::PipelinedStep(const StepTask& task, StagedModel& staged, const TrainOptions& options)
    : task_(task),
      staged_(staged),
      options_(options),
      device_(device_of(*staged.model())),
      pipe_(std::make_unique<pipeline::Pipeline>(
          ordered(task.group, options.stages), make_stages(),
          [this](const torch::Tensor& outputs, const torch::Tensor& targets) {
            return loss_of_outputs(outputs, targets);
          },
          pipeline_options(options, staged, task.group.size(), device_))),
      alike_(ranks_with_the_same_stages(task.group, options.stages)),
      optimizer_(optimizer_of(own_, options, task.group.rank())),
      rates_(*optimizer_),
      scaler_(make_scaler(options)),
      piece_seconds_(staged.pieces().size(), 0) {
  amp::require_precision(device_.type(), options_.precision);
}

std::vector<pipeline::Stage> PipelinedStep::make_stages() {
  const auto& stages = options_.stages;
  std::vector<pipeline::Stage> all(static_cast<std::size_t>(stages.count()));
  for (int stage = stages.place(task_.group.rank()); stage < stages.count();
       stage += stages.ranks) {
    own_.push_back(staged_.module_of(stage));
    all[static_cast<std::size_t>(stage)] = {
        own_.back(), [this, stage](const torch::Tensor& input) { return run_stage(stage, input); }};
  }
  return all;
}

torch::Tensor PipelinedStep::run_stage(int stage, const torch::Tensor& input) {
  const auto& plan = staged_.plan();
  const amp::AutocastGuard autocast(device_.type(), options_.precision);
  const auto first = plan.first_piece(stage);
  const auto end = first + static_cast<std::size_t>(plan.balance[static_cast<std::size_t>(stage)]);
  auto x = input;
  for (std::size_t i = first; i < end; ++i) {
    const auto begin = Clock::now();
    x = staged_.pieces()[i].forward(x);
    const double seconds = seconds_between(begin, Clock::now());
    if (!torch::GradMode::is_enabled()) continue;  // an evaluation
    piece_seconds_[i] += seconds;
    forward_seconds_ += seconds;
  }
  return x;
}

torch::Tensor PipelinedStep::loss_of_outputs(const torch::Tensor& outputs,
                                             const torch::Tensor& targets) {
  const amp::AutocastGuard autocast(device_.type(), options_.precision);
  const auto begin = Clock::now();
  auto loss = task_.objective.loss ? task_.objective.loss(outputs, targets)
                                   : mean_cross_entropy(outputs, targets);
  const double seconds = seconds_between(begin, Clock::now());
  forward_seconds_ += seconds;
  piece_seconds_.back() += seconds;
  return loss;
}

bool PipelinedStep::needs_batches() const {
  return pipe_->has_first_stage() || pipe_->has_last_stage();
}

pipeline::MicroBatch PipelinedStep::micro_batch_of(const data::Batch& batch) const {
  pipeline::MicroBatch micro;
  if (pipe_->has_first_stage()) micro.input = batch.inputs.to(device_, /*non_blocking=*/true);
  if (pipe_->has_last_stage()) micro.target = batch.targets.to(device_, /*non_blocking=*/true);
  return micro;
}

StepOutcome PipelinedStep::run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) {
  ++steps_;
  rates_.set(*optimizer_, learning_rate);
  std::vector<pipeline::MicroBatch> micro_batches;
  for (std::int64_t i = 0; i < options_.micro_batches; ++i) {
    const auto batch = next_batch(batches, task_.recorder);
    if (needs_batches()) micro_batches.push_back(micro_batch_of(batch));
  }
  if (skips()) {
    buffers_before_.clear();
    for (const auto& module : own_) {
      for (auto& copy : copy_buffers(*module)) buffers_before_.push_back(std::move(copy));
    }
  }
  forward_seconds_ = 0;
  const auto begin = Clock::now();
  auto step = pipe_->begin_step(static_cast<int>(options_.micro_batches), with_scale(tag, scaler_));
  const auto losses = step.backward(micro_batches, scaler_ ? scaler_->scale() : 1);
  record(begin);
  StepOutcome outcome;
  for (const auto& loss : losses) outcome.loss.add(LateValue(loss));
  const auto span = task_.recorder.measure(Phase::optimizer);
  const auto why = why_leave_out(losses);
  if (!why.empty()) {
    note_skipped({steps_, why});
    return outcome;
  }
  skipped_.note_update();
  if (options_.clip_norm > 0) pipe_->clip_gradients(options_.clip_norm);
  step.apply(*optimizer_);
  return outcome;
}

// The phases of the micro-batches take turns, so only their sums are known.
void PipelinedStep::record(Clock::time_point begin) {
  const auto end = Clock::now();
  const auto& times = pipe_->times();
  const double forward = std::min(forward_seconds_, times.computing);
  const auto computed = after(begin, times.computing);
  task_.recorder.add(Phase::forward, {begin, after(begin, forward)});
  task_.recorder.add(Phase::backward, {after(begin, forward), computed});
  task_.recorder.add(Phase::exposed_comm, {computed, std::max(computed, end)});
  computing_seconds_ += times.computing;
  waiting_seconds_ += times.seconds - times.computing;
}

// Of the gradients of this rank's stages. Returns whether they are finite.
bool PipelinedStep::unscale() {
  return amp::unscale_gradients(parameters_of(*optimizer_), scaler_ ? scaler_->scale() : 1);
}

// Collective if steps may be skipped. The same on all ranks.
std::string PipelinedStep::why_leave_out(std::span<const torch::Tensor> losses) {
  if (!skips() && !scaler_) return {};
  enum : std::int64_t { kFine, kGradient, kLossOfRank0 };
  std::int64_t mine = unscale() ? kFine : kGradient;
  const auto is_finite = [](const auto& loss) {
    return std::isfinite(loss.template item<double>());
  };
  if (skips() && !std::ranges::all_of(losses, is_finite)) mine = kLossOfRank0 + task_.group.rank();
  const auto worst = task_.group.all_reduce_value(mine, comm::ReduceOp::max);
  const float scale = scaler_ ? scaler_->scale() : 1;
  if (scaler_) scaler_->update(worst == kFine);
  if (worst >= kLossOfRank0) {
    const std::array rank{static_cast<int>(worst - kLossOfRank0)};
    return reason_of_losses(rank);
  }
  if (worst == kFine) return {};
  return reason_of_gradients(scaler_ ? &*scaler_ : nullptr, scale);
}

void PipelinedStep::note_skipped(SkippedUpdate update) {
  auto copies = std::span<const torch::Tensor>(buffers_before_);
  for (const auto& module : own_) {
    if (copies.empty()) break;
    const auto count = module->buffers().size();
    put_back_buffers(*module, {copies.begin(), copies.begin() + static_cast<long>(count)});
    copies = copies.subspan(count);
  }
  skipped_.note(std::move(update));
}

// Replicas have seen other samples, so the statistics of BatchNorm differ.
void PipelinedStep::settle() {
  if (alike_ == nullptr) return;
  std::vector<NamedTensor> buffers;
  for (const auto& module : own_) {
    for (auto& buffer : named_buffers(*module)) buffers.push_back(std::move(buffer));
  }
  broadcast_from_leader(*alike_, buffers);
}

std::optional<Evaluation> PipelinedStep::evaluate(const data::Dataset& data, std::int64_t samples,
                                                  const Interruption& interruption) {
  const auto& stages = options_.stages;
  const StagedForward forward{
      .share = stages.replica(task_.group.rank()),
      .shares = stages.replicas(task_.group.size()),
      .reads = needs_batches(),
      .batches_at_once = 4 * static_cast<std::size_t>(stages.ranks),
      .outputs = [this](const std::vector<data::Batch>& batches) {
        std::vector<pipeline::MicroBatch> micro_batches;
        for (const auto& batch : batches) {
          micro_batches.push_back(needs_batches() ? micro_batch_of(batch) : pipeline::MicroBatch());
        }
        return pipe_->evaluate(micro_batches);
      }};
  return evaluate_stages(task_.group, *staged_.model(), device_, task_.objective, data, samples,
                         options_.batch, options_.precision, forward, interruption);
}

nlohmann::json PipelinedStep::pipeline_section() {
  const auto steps = static_cast<double>(std::max<std::int64_t>(steps_, 1));
  // Backward of a piece is known for all pieces of a rank together; it takes its part of the
  // forwards.
  const double forward = std::accumulate(piece_seconds_.begin(), piece_seconds_.end(), 0.0);
  std::vector<double> pieces;
  for (const double seconds : piece_seconds_) {
    pieces.push_back(forward > 0 ? seconds / forward * computing_seconds_ / steps : 0);
  }
  task_.group.all_reduce(comm::buffer_of(std::span(pieces)), comm::ReduceOp::sum, "times of pieces")
      .wait();
  for (double& seconds : pieces) seconds /= options_.stages.replicas(task_.group.size());
  const auto size = static_cast<std::size_t>(task_.group.size());
  std::vector<double> mine{computing_seconds_ / steps, waiting_seconds_ / steps};
  std::vector<double> all(2 * size);
  task_.group
      .all_gather(comm::buffer_of(std::span(mine)), comm::buffer_of(std::span(all)),
                  "times of ranks")
      .wait();
  StageTimesOfRun times{std::move(pieces), {}, {}};
  for (std::size_t rank = 0; rank < size; ++rank) {
    times.computing.push_back(all[2 * rank]);
    times.waiting.push_back(all[2 * rank + 1]);
  }
  return pipeline_of_report(staged_.plan(), options_.micro_batches, times);
}

}  // namespace ddp::train
