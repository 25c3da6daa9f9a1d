// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "base/text.h"
#include "ddp_runtime/parallel/blocks/block_exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/abilities.h"
#include "ddp_runtime/optim/partial_step.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/buckets/reducer.h"
#include "ddp_runtime/parallel/buckets/sparse_gradients.h"
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"
#include "ddp_runtime/parallel/replica/followed_buffers.h"
#include "ddp_runtime/parallel/replica/ignored_tensors.h"
#include "ddp_runtime/parallel/replica/loss_check.h"
#include "ddp_runtime/parallel/replica/same_parameters.h"
#include "ddp_runtime/parallel/replica/step_agreement.h"
#include "ddp_runtime/parallel/replica/wrapped_parameters.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"

namespace ddp {
namespace {

// Names also tell what decides how gradients are exchanged.
std::vector<NamedTensor> agreed_parameters(const torch::nn::Module& module,
                                           const IgnoredTensors& ignored,
                                           const ReduceType& reduce_type, comm::Group& group) {
  auto parameters = ignored.removed_from(named_parameters(module));
  auto state = parameters;
  const auto sparse = sparse_weights(module);
  for (auto& [name, tensor] : state) {
    if (sparse.contains(tensor.unsafeGetTensorImpl())) name += " (sparse gradient)";
    if (reduce_type) {
      name += fmt::format(" (gradients reduced in {})", reduce_type_name(reduce_type));
    }
  }
  for (auto& buffer : ignored.removed_from(named_buffers(module))) {
    state.push_back(std::move(buffer));
  }
  require_same_model(group, state);
  // A ShardedBuild has distributed the values of what it has divided.
  std::erase_if(state, [](const auto& part) { return is_without_memory(part.tensor); });
  broadcast_from_leader(group, state);
  return parameters;
}

void require_values(const WrappedParameters& parameters) {
  for (const auto& [name, tensor] : parameters.all()) {
    if (!is_without_memory(tensor)) continue;
    throw UsageError(fmt::format(
        "parameter '{}' has no values, because ranks have divided it; a model that was built by "
        "ShardedBuild needs a ShardedDataParallel",
        name));
  }
}

// Those whose gradients are sparse, or the others.
std::vector<NamedTensor> with_gradients(const torch::nn::Module& module,
                                        const WrappedParameters& parameters, bool sparse) {
  const auto weights = sparse_weights(module);
  std::vector<NamedTensor> chosen;
  for (const auto& parameter : parameters.all()) {
    if (weights.contains(parameter.tensor.unsafeGetTensorImpl()) == sparse) {
      chosen.push_back(parameter);
    }
  }
  return chosen;
}

std::unique_ptr<GradientExchange> make_exchange_of_whole_gradients(
    comm::Group& group, std::vector<NamedTensor> dense, std::vector<NamedTensor> sparse,
    const DataParallelOptions& options) {
  if (options.ordered_blocks) return std::make_unique<BlockExchange>(group, dense, sparse, options);
  return std::make_unique<Reducer>(group, std::move(dense), std::move(sparse), options);
}

bool on_a_device(const WrappedParameters& parameters) {
  const auto all = parameters.all();
  return !all.empty() && !all.front().tensor.is_cpu();
}

void require_one_evaluation(const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer) == nullptr) return;
  throw UsageError(
      "LBFGS computes the loss and its gradients several times in one step, but a step of "
      "DistributedDataParallel averages them once; use SGD, Adam, AdamW or another optimizer "
      "whose step() takes no closure");
}

// The ranks exchange what each has updated.
void require_common_parameters(const DistributedDataParallel& replica,
                               torch::optim::Optimizer& optimizer) {
  if (optim::abilities_of(optimizer).divides == nullptr) return;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (!replica.ignores(parameter)) continue;
      throw UsageError(
          "a ShardedOptimizer has parameters that each rank keeps for itself "
          "(DataParallelOptions::ignore); give them an optimizer of their own");
    }
  }
}

// backward() of a tensor with several elements would add up their gradients, and the text of
// libtorch for a loss without a graph does not name the cause.
void require_scalar_loss(const torch::Tensor& loss) {
  if (!loss.defined())
    throw UsageError("the loss is undefined: backward() needs the result of forward()");
  if (loss.numel() != 1) {
    throw UsageError(fmt::format(
        "the loss must be one number, the mean over the micro-batch, not a tensor of shape [{}]",
        fmt::join(loss.sizes(), ", ")));
  }
  if (!loss.requires_grad()) {
    throw UsageError(
        "the loss does not depend on a parameter that requires gradients, or was computed under "
        "torch::NoGradGuard or c10::InferenceMode: backward() has nothing to do");
  }
}

// Splits the time since its construction into waits and updates, without a gap.
class WaitsAndUpdates {
 public:
  WaitsAndUpdates(DistributedDataParallel::StepTimes& times, StepMarks* marks)
      : times_(times), marks_(marks), last_(times.backward.end) {
    times_.waits.clear();
    times_.updates.clear();
  }
  void end_wait() { end(times_.waits, profile::Phase::exposed_comm); }
  void end_update() { end(times_.updates, profile::Phase::optimizer); }

 private:
  void end(std::vector<profile::Interval>& intervals, profile::Phase phase) {
    if (marks_ != nullptr) marks_->end(phase);
    const auto now = profile::Clock::now();
    intervals.push_back({last_, now});
    last_ = now;
  }

  DistributedDataParallel::StepTimes& times_;
  StepMarks* marks_;
  profile::Clock::time_point last_;
};

}  // namespace

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module, comm::Group& group,
                                                 const DataParallelOptions& options)
    : DistributedDataParallel(module, group, options, [&](const WrappedParameters& parameters) {
        require_values(parameters);
        return make_exchange_of_whole_gradients(group, with_gradients(module, parameters, false),
                                                with_gradients(module, parameters, true), options);
      }) {}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module, comm::Group& group,
                                                 const DataParallelOptions& options,
                                                 const MakeExchange& make_exchange)
    : module_(module),
      group_(group),
      options_(options),
      ignored_(std::make_unique<IgnoredTensors>(module, options.ignore, group)),
      buffers_(std::make_unique<FollowedBuffers>(module, *ignored_)),
      parameters_(std::make_unique<WrappedParameters>(
          module, *ignored_, agreed_parameters(module, *ignored_, options.reduce_type, group),
          options.allow_unused)),
      gradients_(make_exchange(*parameters_)),
      losses_(std::make_unique<LossCheck>(on_a_device(*parameters_))),
      agreement_(std::make_unique<StepAgreement>(group)) {
  for (const auto& [name, tensor] : named_parameters(module)) {
    if (ignored_->contains(name)) ignored_parameters_.push_back(tensor);
  }
}

DistributedDataParallel::~DistributedDataParallel() = default;

GradientStep DistributedDataParallel::begin_step(int micro_batches, std::int64_t tag) {
  return begin(micro_batches, group_.size(), tag, true);
}

GradientStep DistributedDataParallel::begin(int micro_batches, int ranks, std::int64_t tag,
                                            bool has_data) {
  if (micro_batches < 1) throw UsageError("a step needs at least one micro-batch");
  require_whole_step();
  parameters_->require_as_wrapped();
  ++steps_;
  if (steps_ == 1 || compares_parameters()) parameters_->require_same_list();
  if (options_.broadcast_buffers && group_.size() > 1) follow_buffers(micro_batches, tag);
  for (auto& parameter : ignored_parameters_) parameter.mutable_grad().reset();
  gradients_->begin_step(micro_batches);
  losses_->begin_step();
  return {*this, micro_batches, ranks, tag, has_data};
}

// See Note [Buffers that are added later].
void DistributedDataParallel::follow_buffers(int micro_batches, std::int64_t tag) {
  buffers_->broadcast(group_);
  const auto change = buffers_->update();
  if (!change) return;
  agreement_->ask({.step = steps_,
                   .micro_batches = micro_batches,
                   .tag = tag,
                   .buffers = buffers_->fingerprint()});
  if (agreement_->holds()) return buffers_->broadcast(group_);
  throw RuntimeError(fmt::format(
      "the buffers of the model on rank {} changed before step {} ({}), but not in the same way on "
      "all ranks; register the same buffers on all ranks, between the same two steps, or list them "
      "in DataParallelOptions::ignore",
      group_.world_rank(group_.rank()), steps_, *change));
}

// Whether this step's agreement includes a checksum of the parameters.
bool DistributedDataParallel::compares_parameters() const noexcept {
  const auto every = options_.check_parameters_every;
  return every > 0 && steps_ % every == 0;
}

// A program that catches the exception of a backward pass, as to leave out a batch that is too
// large, would write to buckets that are still being reduced, and no longer call the same
// collectives as the others.
void DistributedDataParallel::require_whole_step() const {
  if (!reducing_) return;
  throw RuntimeError(fmt::format(
      "the backward pass of step {} ended with an error before all gradients were averaged, so "
      "this rank cannot take part in another step; let the error end the program, and resume from "
      "a checkpoint",
      steps_));
}

void DistributedDataParallel::require_same_parameters() {
  require_whole_step();
  const auto when = fmt::format("after step {}", steps_);
  if (auto* const gathering = gradients_->gathering()) gathering->require_unchanged(when);
  if (options_.check_parameters_every == 0) return;
  parameters_->require_same_list();
  ddp::require_same_parameters(group_, parameters_->all(), when);
}

void DistributedDataParallel::require_finite_loss() {
  if (!options_.check_loss || !losses_->late()) return;
  const auto loss = losses_->last();
  agreement_->require_finite_loss(loss.step, loss.finite);
}

void DistributedDataParallel::ask(const GradientStep& step) {
  const auto loss = losses_->end_step(steps_);
  StepFacts facts{.step = steps_,
                  .micro_batches = step.micro_batches_,
                  .tag = step.tag_,
                  .loss_is_finite = loss.finite,
                  .loss_step = loss.step};
  if (auto* const gathering = gradients_->gathering()) {
    facts.gathers = gathering->gathers();
    facts.gathered = [gathering] { return gathering->gathered(); };
  }
  if (compares_parameters() && group_.size() > 1)
    facts.parameters = checksum_of(parameters_->all());
  reducing_ = group_.size() > 1;
  agreement_->ask(facts);
}

void DistributedDataParallel::capture_backward(const torch::Tensor& loss, const CutGraph& cut) {
  // Also after an error, so that the next step sends its buckets itself.
  const std::unique_ptr<CapturableExchange, void (*)(CapturableExchange*)> capture(
      &gradients_->capturable(), [](CapturableExchange* exchange) { exchange->leave_capture(); });
  capture->begin_capture(loss, cut);
  loss.backward(torch::full_like(loss, 1.0 / group_.size()));
  capture->end_capture();
}

void DistributedDataParallel::finish() {
  gradients_->finish();
  require_agreement();
}

// After all gradients have been averaged.
void DistributedDataParallel::require_agreement() {
  reducing_ = false;
  if (agreement_->check()) return;
  throw_different_parameters(group_, parameters_->all(), fmt::format("in step {}", steps_));
}

// The step whose parts are the buckets' parameters, or null if the update must come after all
// gradients. An error that all ranks have to report is left to finish().
std::unique_ptr<optim::PartialStep> DistributedDataParallel::begin_partial_step(
    torch::optim::Optimizer& optimizer) {
  auto* const buckets = gradients_->bucketwise();
  auto* const splits = optim::abilities_of(optimizer).parts;
  if (buckets == nullptr || !buckets->begin_buckets() || splits == nullptr || !agreement_->holds())
    return nullptr;
  return splits->begin_partial_step();
}

// The collectives are those of finish(), in the same order.
void DistributedDataParallel::finish_and_apply(torch::optim::Optimizer& optimizer) {
  WaitsAndUpdates clock(times_, marks_);
  const auto partial = begin_partial_step(optimizer);
  while (partial) {
    const auto parameters = gradients_->bucketwise()->next_bucket();
    clock.end_wait();
    if (parameters.empty()) break;
    partial->update(parameters);
    clock.end_update();
  }
  finish();
  times_.exposed.end = profile::Clock::now();
  clock.end_wait();
  partial ? partial->finish() : static_cast<void>(optimizer.step());
  clock.end_update();
}

bool DistributedDataParallel::ignores(const torch::Tensor& parameter) const noexcept {
  return std::any_of(ignored_parameters_.begin(), ignored_parameters_.end(),
                     [&](const torch::Tensor& ignored) { return ignored.is_same(parameter); });
}

void DistributedDataParallel::mark_on(StepMarks* marks) noexcept {
  marks_ = marks;
  gradients_->mark_on(marks);
}

void DistributedDataParallel::mark(profile::Phase phase) noexcept {
  if (marks_ != nullptr) marks_->end(phase);
}

void DistributedDataParallel::set_loss_scale(double scale) noexcept {
  if (auto* const buckets = gradients_->bucketwise()) buckets->set_loss_scale(scale);
}

std::size_t DistributedDataParallel::bucket_count() const noexcept {
  return gradients_->bucket_count();
}

std::vector<std::int64_t> DistributedDataParallel::gradient_order() const {
  auto* const buckets = gradients_->bucketwise();
  return buckets == nullptr ? std::vector<std::int64_t>() : buckets->gradient_order();
}

void DistributedDataParallel::expect_gradient_order(std::span<const std::int64_t> order) {
  if (auto* const buckets = gradients_->bucketwise()) buckets->expect_gradient_order(order);
}

const std::vector<profile::CommunicationSpan>& DistributedDataParallel::communication()
    const noexcept {
  return gradients_->communication();
}

std::optional<GradientStep> DistributedDataParallel::begin_uneven_step(bool have_data,
                                                                       int micro_batches,
                                                                       DivideBy divide_by) {
  require_whole_step();
  const int with_data =
      group_.all_reduce_value<std::int32_t>(have_data ? 1 : 0, comm::ReduceOp::sum);
  if (with_data == 0) return std::nullopt;
  if (with_data < group_.size() && communicates_in_forward(module_)) {
    throw UsageError(fmt::format(
        "{} of {} ranks have no data left, and the model has SyncBatchNorm layers, which need all "
        "ranks in forward(); give every rank the same number of batches (an empty batch will do)",
        group_.size() - with_data, group_.size()));
  }
  return begin(micro_batches, divide_by == DivideBy::all_ranks ? group_.size() : with_data, 0,
               have_data);
}

GradientStep::GradientStep(DistributedDataParallel& replica, int micro_batches, int ranks,
                           std::int64_t tag, bool has_data)
    : replica_(&replica),
      micro_batches_(micro_batches),
      ranks_(ranks),
      tag_(tag),
      has_data_(has_data),
      number_(replica.steps_) {}

// Its gradients are gone: the new step has discarded them.
void GradientStep::require_newest() const {
  if (number_ == replica_->steps_) return;
  throw RuntimeError(
      fmt::format("step {} is over, because begin_step() has begun step {}; call backward() and "
                  "apply() of a step before the next one begins",
                  number_, replica_->steps_));
}

void GradientStep::backward(const torch::Tensor& loss, const BackwardOptions& options) {
  run_backward(loss, options);
  finish_backward();
}

void GradientStep::finish_backward() {
  auto& replica = *replica_;
  auto& times = replica.times_;
  if (complete()) {
    replica.finish();
    replica.mark(profile::Phase::exposed_comm);
  }
  times.exposed.end = profile::Clock::now();
  times.waits = {times.exposed};
  times.updates.clear();
}

// Throws unless a backward of this loss is possible now. Nothing has been sent.
void GradientStep::require_possible(const torch::Tensor& loss) const {
  require_newest();
  if (complete()) {
    throw RuntimeError(
        fmt::format("backward() was called more than the {} given to begin_step(); "
                    "begin a new step",
                    counted(micro_batches_, "time")));
  }
  if (!has_data_) throw RuntimeError("this rank has no data in this step; call without_data()");
  require_scalar_loss(loss);
}

// Returns the share of the loss in the mean.
double GradientStep::begin_backward(const torch::Tensor& loss) {
  ++done_;
  auto& replica = *replica_;
  if (replica.options_.check_loss) replica.losses_->add(loss);
  auto* const gathering = replica.gradients_->gathering();
  if (gathering != nullptr) {
    gathering->end_forward(retained_ ? GatheringExchange::Forward::perhaps_made
                                     : GatheringExchange::Forward::made);
  }
  if (complete()) replica.ask(*this);
  if (gathering != nullptr) replica.reducing_ = replica.group_.size() > 1;
  replica.gradients_->begin_backward(loss, complete());
  replica.times_.backward.begin = profile::Clock::now();
  return 1.0 / (static_cast<double>(ranks_) * micro_batches_);
}

void GradientStep::end_backward() {
  auto& replica = *replica_;
  replica.gradients_->end_backward(complete());
  replica.mark(profile::Phase::backward);
  replica.times_.backward.end = replica.times_.exposed.begin = profile::Clock::now();
}

void GradientStep::run_backward(const torch::Tensor& loss, const BackwardOptions& options) {
  require_possible(loss);
  const double share = begin_backward(loss);
  loss.backward(torch::full_like(loss, share * options.weight), options.retain_graph);
  retained_ = options.retain_graph;
  end_backward();
}

void backward(const torch::Tensor& loss, std::span<GradientStep* const> steps,
              const BackwardOptions& options) {
  if (steps.empty()) throw UsageError("backward() needs the steps of the replicas to reduce");
  const auto& first = *steps.front();
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (std::find(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i), steps[i]) !=
        steps.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw UsageError("backward() was given one step twice; give it the step of each replica");
    }
    if (steps[i]->ranks_ == first.ranks_ && steps[i]->micro_batches_ == first.micro_batches_) {
      continue;
    }
    throw UsageError(fmt::format(
        "one backward() cannot average over {} ranks and {} micro-batches for one "
        "replica and over {} and {} for another; begin all steps alike",
        first.ranks_, first.micro_batches_, steps[i]->ranks_, steps[i]->micro_batches_));
  }
  for (const auto* const step : steps) step->require_possible(loss);
  double share = 1;
  for (auto* const step : steps) share = step->begin_backward(loss);
  loss.backward(torch::full_like(loss, share * options.weight), options.retain_graph);
  for (auto* const step : steps) {
    step->retained_ = options.retain_graph;
    step->end_backward();
  }
  for (auto* const step : steps) step->finish_backward();
}

void GradientStep::begin_replay(const torch::Tensor& loss) {
  ++done_;
  auto& replica = *replica_;
  if (replica.options_.check_loss) replica.losses_->add(loss);
  replica.ask(*this);
  replica.gradients_->capturable().begin_replay();
}

void GradientStep::finish_replay() {
  auto& replica = *replica_;
  if (replica.group_.size() > 1) replica.mark(profile::Phase::backward);
  replica.gradients_->capturable().finish_replay();
  replica.require_agreement();
  if (replica.group_.size() > 1) replica.mark(profile::Phase::exposed_comm);
}

void GradientStep::without_data() {
  require_newest();
  if (complete()) {
    throw RuntimeError(
        "without_data() was called after the gradients of the step were averaged; call either "
        "backward() or without_data()");
  }
  auto& replica = *replica_;
  auto* const gathering = replica.gradients_->gathering();
  while (!complete()) {
    ++done_;
    if (gathering != nullptr) gathering->end_forward(GatheringExchange::Forward::without_data);
    if (complete()) replica.ask(*this);
    replica.gradients_->pass_without_data(complete());
  }
  replica.finish();
}

void GradientStep::apply(torch::optim::Optimizer& optimizer) {
  require_newest();
  if (!complete()) {
    throw RuntimeError(
        fmt::format("the step has seen {} of its {} micro-batches, so its gradients are not "
                    "averaged over the ranks yet; call backward() for the others first",
                    done_, micro_batches_));
  }
  require_one_evaluation(optimizer);
  replica_->gradients_->require_optimizer(optimizer);
  require_common_parameters(*replica_, optimizer);
  optimizer.step();
}

void GradientStep::backward_and_apply(const torch::Tensor& loss,
                                      torch::optim::Optimizer& optimizer) {
  if (done_ + 1 < micro_batches_) {
    throw RuntimeError(
        fmt::format("backward_and_apply() is for the last of the {} micro-batches of a step, which "
                    "has seen {}; call backward() for the others first",
                    micro_batches_, done_));
  }
  require_one_evaluation(optimizer);
  replica_->gradients_->require_optimizer(optimizer);
  require_common_parameters(*replica_, optimizer);
  run_backward(loss, {});
  replica_->finish_and_apply(optimizer);
}

}  // namespace ddp
