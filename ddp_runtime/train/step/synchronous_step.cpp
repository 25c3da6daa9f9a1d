// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/synchronous_step.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/data/sampler.h"
#include "ddp_runtime/optim/abilities.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/optim/skipped_steps.h"
#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/pipeline/generator_seed.h"
#include "ddp_runtime/train/model/optimizer.h"
#include "ddp_runtime/train/model/state_offload.h"
#include "ddp_runtime/train/options/shard_mode.h"
#include "ddp_runtime/train/step/clip_gradients.h"
#include "ddp_runtime/train/step/forward_pass.h"
#include "ddp_runtime/train/step/loss_scaling.h"

namespace ddp::train {
namespace {

using profile::Phase;

constexpr std::size_t kMaxCharacters = 300;  // of an error of the device in a note

DataParallelOptions parallel_options(const TrainOptions& options) {
  auto parallel = options.parallel;
  // It evaluates, clips and unscales the model that all ranks have in common.
  if (!parallel.ignore.empty()) {
    throw UsageError(fmt::format(
        "the trainer cannot leave '{}' to each rank (parallel.ignore); write a loop of your own, "
        "see docs/own_loop.md",
        parallel.ignore.front()));
  }
  if (options.on_nan == OnNan::skip) parallel.check_loss = false;  // LossWatch checks it
  return parallel;
}

// What the options need that an optimizer of another class than those of ddp::optim does not have;
// null if it has all.
const char* what_it_lacks(torch::optim::Optimizer& optimizer, const TrainOptions& options,
                          torch::Device device) {
  const auto abilities = optim::abilities_of(optimizer);
  if (abilities.keeper == nullptr) {
    if (options.param_type == amp::Precision::bf16)
      return "bf16 weights, which need float32 masters";
    if (offloads(options)) return "a state in another place (--offload-optimizer)";
  }
  const bool skips = options.on_nan == OnNan::skip || options.loss_scale != 0 ||
                     options.precision == amp::Precision::fp16;
  if (!device.is_cpu() && skips && abilities.skips == nullptr) {
    return "skipped steps and loss scaling on a GPU";
  }
  return nullptr;
}

void require_usable(torch::optim::Optimizer& optimizer, const TrainOptions& options,
                    torch::Device device) {
  const char* const what = what_it_lacks(optimizer, options, device);
  if (what == nullptr) return;
  throw UsageError(fmt::format(
      "the task's own optimizer does not support {}; use SGD, Adam or AdamW of ddp::optim", what));
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(torch::nn::Module& module,
                                                        const TrainOptions& options,
                                                        torch::Device device,
                                                        const OptimizerFactory& own) {
  if (!own) return make_optimizer(module, options.optimizer);
  auto optimizer = own(module);
  if (!optimizer) throw UsageError("the task's function that makes the optimizer returned none");
  require_usable(*optimizer, options, device);
  return optimizer;
}

// Of what updates this rank's parameters, or its parts of them; null if it has none.
optim::KeepsMasters* keeper_of(torch::optim::Optimizer& optimizer) {
  return optim::abilities_of(optim::updater_of(optimizer)).keeper;
}

}  // namespace

SynchronousStep::SynchronousStep(const StepTask& task, const TrainOptions& options, StepParts parts)
    : task_(task),
      group_(&task.group),
      options_(options),
      device_(device_of(task.module)),
      replica_(make_replica(task.group, task.module, options, parallel_options(options))),
      optimizer_(shard_if_wanted(make_optimizer(task.module, options, device_, parts.optimizer),
                                 *replica_, options)),
      can_(optim::abilities_of(*optimizer_)),
      rates_(*optimizer_),
      scaler_(make_scaler(options)) {
  require_offloadable(options_, device_);
  amp::require_precision(device_.type(), options_.precision);
  if (offloads(options_)) offload_state(task.group, keeper_of(*optimizer_), options_);
  // Also for a module that the program has converted itself.
  if (auto* const keeper = keeper_of(*optimizer_)) keeper->keep_masters();
  if (task_.objective.weight) weights_.emplace(task.group, task_.objective);
  if (device_.is_cpu()) return;
  if (parts.graph) {
    graphed_ = true;
    graph_.emplace(device_, std::move(parts.graph), options_.graph.warm_up);
    never_ = torch::zeros({}, torch::TensorOptions(torch::kFloat32).device(device_));
  }
  marks_.emplace(device_);
  task_.recorder.time_on(&*marks_);
  replica_->mark_on(&*marks_);
}

// The hooks of the former replica must be gone before the next one has its own.
void SynchronousStep::average_over(comm::Group& group) {
  settle();
  const auto order = replica_->gradient_order();
  group_ = &group;
  replica_.reset();
  replica_ = make_replica(group, task_.module, options_, parallel_options(options_));
  replica_->expect_gradient_order(order);
  if (marks_) replica_->mark_on(&*marks_);
  guard_.reset();
}

SynchronousStep::~SynchronousStep() {
  task_.recorder.time_on(nullptr);
}

bool SynchronousStep::skips() const noexcept {
  return options_.on_nan == OnNan::skip;
}

// The scaler's state may have been restored since the constructor.
void SynchronousStep::prepare_guard() {
  auto* const scaler = scaler_ ? &*scaler_ : nullptr;
  if (!guard_ && (scaler_ || skips())) {
    guard_ = make_guard({*group_, task_.module, *optimizer_, scaler, skips()}, device_);
  }
  // A hook that keeps a part of the gradients needs the scale of this step on the host.
  if (scaler_ && options_.parallel.hook) note(guard_->settle());
}

StepOutcome SynchronousStep::run(data::Prefetcher& batches, double learning_rate,
                                 std::int64_t tag) {
  tag = with_scale(tag, scaler_);
  if (graphed_) learning_rate = static_cast<float>(learning_rate);
  rates_.set(*optimizer_, learning_rate);
  if (!graph_ || !graph_->warmed_up()) return run_eagerly(batches, std::nullopt, tag);
  auto batch = next_batch(batches, task_.recorder);
  if (prepare_replay(batch, learning_rate)) return replay(tag);
  return run_eagerly(batches, std::move(batch), tag);
}

GradientStep SynchronousStep::begin(int micro_batches, std::int64_t tag) {
  ++steps_;
  if (scaler_) replica_->set_loss_scale(scaler_->scale());
  return replica_->begin_step(micro_batches, tag);
}

// `first`: the first micro-batch, if it has been taken.
StepOutcome SynchronousStep::run_eagerly(data::Prefetcher& batches,
                                         std::optional<data::Batch> first, std::int64_t tag) {
  const auto micro_batches = static_cast<int>(options_.micro_batches);
  prepare_guard();
  auto step = begin(micro_batches, tag);
  if (guard_) guard_->begin_step();
  StepOutcome outcome;
  auto weighed = weighed_batches(batches);
  for (int micro = 0; micro < micro_batches; ++micro) {
    const auto i = static_cast<std::size_t>(micro);
    const auto batch = weights_ ? std::move(weighed[i])
                       : first  ? *std::exchange(first, std::nullopt)
                                : next_batch(batches, task_.recorder);
    const auto derivatives =
        weights_ && !weights_->counts(i) ? Derivatives::none_of_outputs : Derivatives::all;
    std::optional<pipeline::SeededGenerators> seeded;
    if (options_.blocks > 0) seeded.emplace(seed_of_block(micro), device_);
    auto loss = forward_loss(batch, task_.objective, device_, options_.precision, task_.recorder,
                             derivatives);
    if (weights_) loss = weights_->weighted(loss, i);
    if (options_.parallel.ordered_blocks && micro == 0) first_buffers_ = copy_buffers(task_.module);
    outcome.loss.add(run_micro_batch(step, std::move(loss), micro + 1 == micro_batches));
  }
  // Rank 0's buffers become those of all, with the running means over its blocks. How many it has
  // depends on the number of ranks, so only those of the first block count.
  if (options_.parallel.ordered_blocks) put_back_buffers(task_.module, first_buffers_);
  if (graph_) graph_->note_eager_step();
  const auto& times = replica_->times();
  task_.recorder.add_communication(replica_->communication(), times.backward, times.updates);
  if (updates_in_backward()) return outcome;
  const auto span = task_.recorder.measure(Phase::optimizer);
  finish(step);
  return outcome;
}

// Of the random numbers of a block, which must not depend on the number of ranks.
std::uint64_t SynchronousStep::seed_of_block(std::int64_t micro) const noexcept {
  const data::BatchLayout layout{options_.batch, options_.micro_batches, group_->rank(),
                                 group_->size(), true};
  return pipeline::forward_seed(options_.seed, steps_before_ + steps_, 0, layout.block(micro));
}

// Whether nothing needs all gradients before the first parameter changes.
bool SynchronousStep::updates_in_backward() const noexcept {
  return !scaler_ && !skips() && options_.clip_norm <= 0 && !graphed_;
}

// Parameters are the same on all ranks. BatchNorm statistics are not, because each rank's forward
// has changed its own copy since the step began.
void SynchronousStep::settle() {
  if (guard_) note(guard_->settle());
  replica_->require_finite_loss();
  broadcast_from_leader(*group_, named_buffers(task_.module));
}

// All micro-batches of the step, if the objective weighs them: it needs the sum of all weights
// before the first backward.
std::vector<data::Batch> SynchronousStep::weighed_batches(data::Prefetcher& batches) {
  std::vector<data::Batch> weighed;
  if (!weights_) return weighed;
  for (std::int64_t i = 0; i < options_.micro_batches; ++i) {
    weighed.push_back(next_batch(batches, task_.recorder));
  }
  weights_->begin_step(weighed);
  return weighed;
}

LateValue SynchronousStep::run_micro_batch(GradientStep& step, torch::Tensor loss, bool last) {
  LateValue value(loss);
  if (guard_) guard_->add_loss(loss);
  if (guard_ && last) {
    guard_->end_losses();
    guard_->ask();
  }
  if (last && updates_in_backward()) {
    step.backward_and_apply(loss, *optimizer_);
  } else {
    step.backward(scaled(loss));
  }
  const auto& times = replica_->times();
  task_.recorder.add(Phase::backward, times.backward);
  task_.recorder.add(Phase::exposed_comm, times.waits);
  task_.recorder.add(Phase::optimizer, times.updates);
  return value;
}

torch::Tensor SynchronousStep::scaled(const torch::Tensor& loss) const {
  return guard_ ? guard_->scaled(loss) : loss;
}

// The optimizer, if it has a part of the gradients of the module only.
ShardedOptimizer* SynchronousStep::divider_of_gradients() const {
  if (dynamic_cast<ShardedDataParallel*>(&*replica_) == nullptr) return nullptr;
  return dynamic_cast<ShardedOptimizer*>(&*optimizer_);
}

// All averaged gradients that this rank has.
std::vector<torch::Tensor> SynchronousStep::gradients() const {
  const auto* const divider = divider_of_gradients();
  return divider != nullptr ? divider->gradients() : amp::gradients_of(task_.module.parameters());
}

UpdateGuard::Have SynchronousStep::gradients_here() const {
  return divider_of_gradients() != nullptr ? UpdateGuard::Have::parts : UpdateGuard::Have::all;
}

void SynchronousStep::finish(GradientStep& step) {
  if (!guard_) return update(step);
  guard_->await_answers();
  if (guard_->decide(gradients(), gradients_here())) update(step);
  guard_->put_back_buffers();
  note(guard_->end_step(steps_, guard_->facts()));
}

void SynchronousStep::clip() {
  if (auto* const divider = divider_of_gradients()) {
    return divider->clip_gradients(options_.clip_norm);
  }
  clip_gradients(task_.module.parameters(), options_.clip_norm);
}

void SynchronousStep::update(GradientStep& step) {
  if (options_.clip_norm > 0) clip();
  if (graphed_ && !guard_) return update_like_the_graph(step);
  step.apply(*optimizer_);
}

// By the operators that a flag makes the optimizer use on every kind of device.
void SynchronousStep::update_like_the_graph(GradientStep& step) {
  can_.skips->skip_next_step_if(never_);
  step.apply(*optimizer_);
  can_.skips->settle_step(false);
}

// Returns whether the step of this batch can be a replay, for which everything is on the device
// then.
bool SynchronousStep::prepare_replay(const data::Batch& batch, double learning_rate) {
  if (graph_->captured() && !graph_->fits(batch)) {
    if (!std::exchange(noted_other_shape_, true)) {
      notes_.push_back("graph: steps with batches of another shape run eagerly");
    }
    return false;
  }
  // An eager step in between has counted on the host, which must know its result.
  if (!graph_->counts_on_device() && guard_) note(guard_->settle());
  // Without an update the optimizer has no state to capture.
  if (!graph_->captured() && guard_ && !skipped_.has_updated()) return false;
  {
    const auto span = task_.recorder.measure(Phase::data);
    graph_->load(batch, learning_rate, can_.graphs->steps_made());
  }
  return graph_->captured() || capture();
}

// Returns false if it is not possible. The step then runs eagerly, like all later ones.
bool SynchronousStep::capture() {
  for (auto& parameter : task_.module.parameters()) parameter.mutable_grad().reset();
  try {
    graph_->capture([this](const auto& batch, const auto& numbers, const auto& cut) {
      return enqueue(batch, numbers, cut);
    });
    return true;
  } catch (const std::exception& error) {
    const auto why = fmt::format("the step cannot be captured: {}",
                                 sanitize_first_line(error.what(), kMaxCharacters));
    if (options_.graph.mode == GraphMode::on) {
      throw UsageError(fmt::format("--graph on: {}; use --graph auto or off", why));
    }
    notes_.push_back(fmt::format("graph: steps run eagerly, because {}", why));
  }
  can_.skips->skip_next_step_if({});
  graph_.reset();
  return false;
}

// The device's part of a step: see Note [The calls of a step]. Runs once, in a capture. What it
// gives to `cut` runs in each replay.
GraphedStep::Results SynchronousStep::enqueue(const data::Batch& batch,
                                              const optim::DeviceNumbers& numbers,
                                              const CutGraph& cut) {
  if (guard_) guard_->begin_step();
  const auto loss = loss_on_device(batch, task_.objective, device_, options_.precision);
  if (guard_) guard_->add_loss(loss);
  if (guard_) guard_->end_losses();
  const bool communicates = group_->size() > 1;
  if (communicates) cut([this, value = loss.detach()] { begin_collectives(value); });
  replica_->capture_backward(scaled(loss), cut);
  if (communicates) cut([this] { end_collectives(); });
  if (guard_) {
    guard_->decide(amp::gradients_of(task_.module.parameters()), UpdateGuard::Have::all);
  }
  if (options_.clip_norm > 0) clip_gradients(task_.module.parameters(), options_.clip_norm);
  can_.graphs->capture_step(numbers);
  if (!guard_) return {loss.detach(), {}};
  guard_->put_back_buffers();
  return {loss.detach(), guard_->facts()};
}

void SynchronousStep::begin_collectives(const torch::Tensor& loss) {
  if (guard_) guard_->ask();
  replayed_->begin_replay(loss);
}

void SynchronousStep::end_collectives() {
  replayed_->finish_replay();
  if (guard_) guard_->await_answers();
}

// The host's part of a step.
StepOutcome SynchronousStep::replay(std::int64_t tag) {
  replayed_ = begin(1, tag);
  StepOutcome outcome;
  const bool alone = group_->size() == 1;
  const auto span = task_.recorder.measure(alone ? Phase::backward : Phase::optimizer);
  can_.graphs->begin_replay();
  const auto& results = graph_->replay();
  ++replays_;
  outcome.loss.add(LateValue(results.loss));
  if (alone) {
    begin_collectives(results.loss);
    end_collectives();
  }
  can_.graphs->note_replay();
  if (guard_) note(guard_->end_step(steps_, results.facts));
  return outcome;
}

void SynchronousStep::note(const std::optional<UpdateGuard::Result>& settled) {
  if (!settled) return;
  if (settled->why.empty()) {
    skipped_.note_update();
  } else {
    skipped_.note({settled->step, settled->why});
  }
}

std::vector<std::string> SynchronousStep::take_notes() {
  return std::exchange(notes_, {});
}

}  // namespace ddp::train
