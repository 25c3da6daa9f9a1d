// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/shard_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/buckets/missing_gradients.h"
#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "ddp_runtime/parallel/buckets/used_parameters.h"
#include "ddp_runtime/parallel/replica/same_parameters.h"
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"
#include "ddp_runtime/parallel/sharded/shard_requirements.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/parallel/sharded/units/unit_list.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"

namespace ddp {
namespace {

constexpr std::size_t kRoot = ShardedUnits::kRoot;

}  // namespace

ShardExchange::ShardExchange(comm::Group& group, const torch::nn::Module& module,
                             std::vector<NamedTensor> parameters, const ShardOptions& options)
    : options_(options),
      groups_(options.shard == Shard::hybrid ? groups_by_machine(group, options.hybrid_ranks)
                                             : ShardGroups::of_all(group)),
      gathers_(groups_.sharing.channel("gathered parameters")),
      kept_(kept_with(options, module)) {
  require_shardable(module, parameters, options_);
  if (kept_ == FlatShard::Kept::common) require_one_machine(groups_.sharing);
  // All are on one device.
  for (const auto& parameter : parameters) {
    if (!parameter.tensor.is_cpu()) device_ = parameter.tensor.device();
  }
  if (device_) stream_ = torch_compat::current_stream(*device_);
  units_ = make_sharded_units(gathers_, module, parameters, options_, kept_, this);
  whole_.emplace(groups_.sharing, kept_, units_);
  plan_sums();
  UnitOrder::Units registered;
  if (kept_ == FlatShard::Kept::part) {
    for (std::size_t unit = kRoot + 1; unit < units_.all.size(); ++unit) registered.push_back(unit);
  }
  order_ = UnitOrder(registered);
  plan_launches();
  used_.resize(units_.trained.size());
  // Last, because they refer to this object.
  for (std::size_t i = 0; i < units_.trained.size(); ++i) {
    auto& trained = units_.trained[i];
    trained.key = trained.accumulator->add_post_hook(
        torch_compat::after_accumulation([this, i] { on_gradient(i); }));
  }
  watch_reads();
}

ShardExchange::~ShardExchange() {
  if (!misuse_.empty()) TORCH_WARN(misuse_);  // no call came after it
  for (const auto& trained : units_.trained) trained.accumulator->del_post_hook(trained.key);
}

void ShardExchange::plan_sums() {
  sum_of_.resize(units_.flats.size());
  std::vector<const FlatShard*> reduced;
  for (std::size_t flat = 0; flat < units_.flats.size(); ++flat) {
    if (!units_.is_trained(flat)) continue;
    sum_of_[flat] = reduced.size();
    reduced.push_back(units_.flats[flat].get());
  }
  sums_.emplace(groups_, std::move(reduced), options_.data_parallel.reduce_type);
}

void ShardExchange::plan_launches() {
  launches_ = plan_reductions(units_, order_.expected());
  ready_.emplace(launches_);
}

// --- Gathers

// Takes part in the gathers of all units; those that this rank does not want are given back.
void ShardExchange::gather_each(const UnitOrder::Units& units, std::optional<std::size_t> wanted) {
  for (const std::size_t unit : units) {
    whole_->start_gather(unit);
    if (unit == wanted || unit == kRoot) continue;
    const bool is_over = in_backward_ ? has_all_gradients(unit) : !keeps_after_forward(unit);
    if (is_over) whole_->release(unit);
  }
}

// Whether it is whole until backward.
bool ShardExchange::keeps_after_forward(std::size_t unit) const {
  return in_step_ && (!options_.reshard_after_forward || order_.is_last(unit));
}

// Whether nothing of this backward reads the unit any more. See Note [A unit's backward].
bool ShardExchange::has_all_gradients(std::size_t unit) const {
  return missing_in_unit_[unit] == 0 && !units_.all[unit].has_frozen;
}

std::optional<std::size_t> ShardExchange::find_unit(const torch::nn::Module& module) const {
  if (kept_ != FlatShard::Kept::part) return std::nullopt;
  const auto found = std::ranges::find(units_.all, &module, &ShardedUnits::Unit::module);
  if (found == units_.all.end()) return std::nullopt;
  return static_cast<std::size_t>(found - units_.all.begin());
}

void ShardExchange::enter(std::size_t unit) {
  const std::lock_guard lock(mutex_);
  require_no_misuse();
  if (in_backward_) {  // activation checkpointing calls the unit again
    gather_each(order_.back_to(unit), unit);
  } else {
    // Without ForwardPasses, a pass begins with the root.
    if (unit == kRoot && !in_step_ && !in_passes_) order_.begin_forward();
    if (unit != kRoot) gather_each(call(unit), unit);
  }
  whole_->start_gather(unit);
  const auto ahead = in_backward_ ? order_.previous() : order_.next();
  if (ahead && unit != kRoot) whole_->start_gather(*ahead);
  whole_->wait_for(unit);
  whole_->enter(unit);
  if (unit != kRoot) ++entered_;
  watch_reads();
}

// See Note [Reads outside of units]. Not under the lock, which the reader may hold.
void ShardExchange::note_read(const torch::Tensor& parameter, const char* reader) {
  for (const auto& unit : units_.all) {
    for (const std::size_t flat : unit.flats) {
      if (!units_.flats[flat]->has_storage_of(parameter)) continue;
      units_.flats[flat]->pretend();
      if (!misuse_.empty()) continue;
      misuse_ =
          &unit == &units_.all[kRoot]
              ? fmt::format(
                    "{} has read a parameter of the model outside of a step, when it has no "
                    "values; use ForwardPasses or WholeParameters",
                    reader)
              : fmt::format(
                    "{} has read a parameter of unit '{}' outside of its call, when it has no "
                    "values; call the module as ddp::unit(module)(arguments)",
                    reader, unit.name);
    }
  }
}

void ShardExchange::require_no_misuse() {
  if (misuse_.empty()) return;
  whole_->forget_all();
  throw UsageError(std::exchange(misuse_, std::string()));
}

void ShardExchange::watch_reads() {
  if (has_learned_ && (entered_ > 0 || in_backward_)) return reads_.reset();
  if (!reads_ && kept_ == FlatShard::Kept::part && gathers_.size() > 1) reads_.emplace();
}

// Outside of steps, the ranks do not compare what they have gathered.
UnitOrder::Units ShardExchange::call(std::size_t unit) {
  if (in_passes_ && gathers_.size() > 1 && !order_.is_ahead(unit)) {
    throw UsageError(fmt::format(
        "the unit '{}' is called out of turn in a pass of ForwardPasses: call begin() before each "
        "forward, and register units in the order of their calls, or make a training step first, "
        "which learns their order",
        units_.all[unit].name));
  }
  return order_.call(unit);
}

void ShardExchange::leave(std::size_t unit) noexcept {
  const std::lock_guard lock(mutex_);
  whole_->leave(unit);
  if (unit != kRoot) --entered_;
  watch_reads();
  const bool backward_follows = torch::GradMode::is_enabled();
  if (in_backward_ && backward_follows) return;
  if (unit == kRoot && (in_step_ || in_passes_)) return;
  if (!in_backward_ && keeps_after_forward(unit)) return;
  whole_->release(unit);
}

void ShardExchange::expect_backward(std::size_t unit, const std::vector<torch::Tensor>& outputs) {
  if (!torch::GradMode::is_enabled() || unit == kRoot) return;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    output.register_hook([this, unit, alive = std::weak_ptr(alive_)](const torch::Tensor&) {
      if (alive.lock()) before_backward(unit);
    });
  }
}

void ShardExchange::before_backward(std::size_t unit) {
  const std::lock_guard lock(mutex_);
  if (!in_backward_) {  // of a penalty, for example, by torch::autograd::grad()
    whole_->start_gather(unit);
    return whole_->wait_for(unit);
  }
  gather_each(order_.back_to(unit), unit);
  if (!has_all_gradients(unit)) whole_->start_gather(unit);
  if (const auto previous = order_.previous()) whole_->start_gather(*previous);
  whole_->wait_for(unit);
}

void ShardExchange::begin_passes() {
  if (in_step_) {
    throw UsageError(
        "ForwardPasses are for passes between two steps, but a step has begun; finish it first");
  }
  in_passes_ = true;
  whole_->start_gather(kRoot);
  whole_->wait_for(kRoot);
}

void ShardExchange::begin_pass() {
  order_.begin_forward();
}

void ShardExchange::end_pass() {
  require_no_misuse();
  gather_each(order_.skip_rest(), std::nullopt);
}

void ShardExchange::end_passes() noexcept {
  in_passes_ = false;
  // Units that were gathered ahead, too, if an exception ends the passes.
  whole_->release_each();
}

// --- A step

void ShardExchange::require_unchanged(const std::string& when) {
  require_no_misuse();
  whole_->require_unchanged();
  if (options_.data_parallel.check_parameters_every > 0) compare_parts(when);
}

// What several ranks have a part of, they must have alike: see Note [Replicas that drift apart].
void ShardExchange::compare_parts(const std::string& when) const {
  if (groups_.across == nullptr || kept_ != FlatShard::Kept::part) return;
  std::vector<NamedTensor> parts;
  for (const auto& flat : units_.flats) {
    for (const auto& part : flat->parts()) {
      parts.push_back({units_.name_of(flat->arrays()[part.rows.array]), part.values.detach()});
    }
  }
  std::string difference;
  try {
    ddp::require_same_parameters(*groups_.across, parts, when);
  } catch (const RuntimeError& error) {
    difference = error.what();
  }
  // Ranks whose own parts are the same must not continue without the others.
  const std::int32_t differs = difference.empty() ? 0 : 1;
  if (groups_.all.all_reduce_value(differs, comm::ReduceOp::max) == 0) return;
  // The rank that fails first is the one that the user hears of.
  const auto texts = groups_.all.all_gather_text(difference);
  throw RuntimeError(*std::ranges::find_if_not(texts, &std::string::empty));
}

// See Note [Gradients on a device] in reducer.h.
void ShardExchange::require_stream() const {
  if (!device_ || torch_compat::current_stream(*device_) == stream_) return;
  throw UsageError(fmt::format(
      "a step runs on another stream of {} than the one on which ShardedDataParallel was "
      "constructed; make the same stream current for both",
      device_->str()));
}

// Parameters may be frozen between two steps.
void ShardExchange::find_frozen() {
  for (auto& unit : units_.all) unit.has_frozen = unit.has_frozen_flat;
  for (const auto& trained : units_.trained) {
    if (!trained.parameter.tensor.requires_grad()) units_.all[trained.unit].has_frozen = true;
  }
}

void ShardExchange::begin_step(int /*micro_batches*/) {
  require_no_misuse();
  whole_->require_not_requested("begin_step() was called");
  whole_->require_unchanged();
  const auto every = options_.data_parallel.check_parameters_every;
  if (++steps_; every > 0 && steps_ % every == 0) {
    compare_parts(fmt::format("before step {}", steps_));
  }
  require_stream();
  find_frozen();
  whole_->release_each();
  for (auto& trained : units_.trained) trained.parameter.tensor.mutable_grad().reset();
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  sums_->begin_step();
  if (learned_) {
    order_ = UnitOrder(*std::exchange(learned_, std::nullopt));
    plan_launches();
  }
  whole_->begin_step();
  in_step_ = true;
  in_backward_ = false;
  watch_reads();
  order_.begin_forward();
  whole_->start_gather(kRoot);
  whole_->wait_for(kRoot);
}

void ShardExchange::begin_backward(const torch::Tensor& loss, bool last) {
  require_stream();
  const std::lock_guard lock(mutex_);
  in_last_ = last;
  begin_backward_pass();
  if (!options_.data_parallel.allow_unused) return;
  const auto graph = graph_of(loss);
  for (std::size_t i = 0; i < units_.trained.size(); ++i) {
    if (!graph.contains(units_.trained[i].accumulator.get())) mark_ready(i);
  }
}

void ShardExchange::end_forward(Forward forward) {
  const std::lock_guard lock(mutex_);
  require_no_misuse();
  // All ranks go through the same graph again.
  if (forward == Forward::perhaps_made && order_.calls().empty()) return;
  gather_each(order_.skip_rest(), std::nullopt);
}

std::string ShardExchange::gathered() const {
  std::string names;
  for (const std::size_t unit : whole_->gathered()) {
    names += (unit == kRoot ? std::string("the root") : units_.all[unit].name) + "\n";
  }
  return names;
}

void ShardExchange::begin_backward_pass() {
  in_backward_ = true;
  watch_reads();
  order_.begin_backward();
  ready_->reset();
  missing_in_unit_.assign(units_.all.size(), 0);
  for (const auto& trained : units_.trained) ++missing_in_unit_[trained.unit];
}

void ShardExchange::on_gradient(std::size_t index) {
  const std::lock_guard lock(mutex_);
  const auto& gradient = units_.trained[index].parameter.tensor.grad();
  // A function may return no gradient for an input: then the parameter was not used.
  if (!in_backward_ || !gradient.defined()) return;
  if (ready_->is_ready(index)) {
    throw RuntimeError(fmt::format(
        "parameter '{}' got its gradient twice in one backward pass; a nested backward(), as in "
        "hand-written activation checkpointing, does that: use ddp::checkpointed()",
        units_.trained[index].parameter.name));
  }
  used_[index] = 1;
  if (!reduces()) {
    widen_gradient(units_.trained[index].parameter.tensor, options_.data_parallel.reduce_type);
  }
  mark_ready(index);
}

void ShardExchange::mark_ready(std::size_t index) {
  const std::size_t unit = units_.trained[index].unit;
  --missing_in_unit_[unit];
  // Before its turn, all ranks still have a unit, or not, alike.
  if (unit != kRoot && has_all_gradients(unit) && order_.was_reached(unit)) whole_->release(unit);
  const auto [first, last] = ready_->mark_ready(index);
  for (std::size_t place = first; place < last; ++place) launch(place);
}

void ShardExchange::launch(std::size_t place) {
  const std::size_t first = launches_.buckets[place].front();
  // A rank that waits for another one's reduction must not keep that one waiting for a gather.
  gather_each(order_.back_to(units_.trained[first].unit), std::nullopt);
  if (!reduces()) return;
  std::vector<torch::Tensor> gradients;
  for (const std::size_t index : launches_.buckets[place]) {
    torch::Tensor& gradient = units_.trained[index].parameter.tensor.mutable_grad();
    gradients.push_back(std::exchange(gradient, torch::Tensor()));
  }
  sums_->reduce(sum_of_[units_.trained[first].flat].value(), gradients,
                fmt::format("gradients of {}", units_.all[units_.trained[first].unit].name),
                in_last_);
}

std::vector<std::string> ShardExchange::missing_names() const {
  std::vector<std::string> names;
  for (const std::size_t index : ready_->missing()) {
    names.push_back(units_.trained[index].parameter.name);
  }
  return names;
}

void ShardExchange::end_backward(bool last) {
  require_no_misuse();
  const auto missing = missing_names();
  if (!missing.empty() && !options_.data_parallel.allow_unused && groups_.all.size() > 1) {
    throw RuntimeError(describe_missing(missing, units_.trained.size(), false));
  }
  end_backward_pass(last);
}

void ShardExchange::end_backward_pass(bool last) {
  const std::lock_guard lock(mutex_);
  for (const std::size_t index : ready_->missing()) mark_ready(index);
  for (const std::size_t unit : order_.skip_rest_of_backward()) {
    whole_->start_gather(unit);
    whole_->release(unit);
  }
  for (std::size_t unit = 0; unit < units_.all.size(); ++unit) {
    if (unit != kRoot || last) whole_->release(unit);
  }
  in_backward_ = false;
  watch_reads();
  in_step_ = !last;
  if (last) whole_->end_step();
  if (!order_.calls().empty()) calls_ = order_.calls();
  order_.begin_forward();
}

void ShardExchange::pass_without_data(bool last) {
  in_last_ = last;
  begin_backward_pass();
  // In the order of a backward through all units, which GPUs must follow on all ranks.
  for (const std::size_t unit : order_.backward()) {
    before_backward(unit);
    for (std::size_t i = 0; i < units_.trained.size(); ++i) {
      if (units_.trained[i].unit == unit) mark_ready(i);
    }
  }
  end_backward_pass(last);
}

void ShardExchange::finish() {
  sums_->finish();
  spans_ = whole_->take_spans();
  for (auto& span : sums_->take_spans()) spans_.push_back(std::move(span));
  if (options_.data_parallel.allow_unused) {
    groups_.all
        .all_reduce(comm::buffer_of(std::span(used_)), comm::ReduceOp::max,
                    "map of used parameters")
        .wait();
  } else if (groups_.all.size() > 1) {
    std::fill(used_.begin(), used_.end(), std::uint8_t{1});
  }
  learn_order();
}

// All ranks adopt the order of one rank, the first that has data.
void ShardExchange::learn_order() {
  if (has_learned_ || kept_ != FlatShard::Kept::part) return;
  comm::Group& group = groups_.all;
  const int mine = calls_.empty() ? group.size() : group.rank();
  const int leader = -group.all_reduce_value<std::int32_t>(-mine, comm::ReduceOp::max);
  if (leader == group.size()) return;
  has_learned_ = true;
  std::vector<std::int64_t> calls(calls_.begin(), calls_.end());
  auto count = static_cast<std::int64_t>(calls.size());
  group.broadcast(comm::buffer_of(count), leader, "number of units' calls").wait();
  calls.resize(static_cast<std::size_t>(count));
  group.broadcast(comm::buffer_of(std::span(calls)), leader, "order of units").wait();
  const auto learned = order_.learned_from({calls.begin(), calls.end()});
  if (learned != order_.expected()) learned_ = learned;
}

CapturableExchange& ShardExchange::capturable() {
  throw UsageError("steps of ShardedDataParallel cannot be captured as a graph");
}

void ShardExchange::mark_on(StepMarks* marks) noexcept {
  sums_->mark_on(marks);
}

// --- The optimizer

void ShardExchange::require_optimizer(torch::optim::Optimizer& optimizer) const {
  require_masters(optimizer, options_.data_parallel.reduce_type);
  const auto* const sharded = dynamic_cast<const ShardedOptimizer*>(&optimizer);
  if (sharded != nullptr && sharded->is_of(*this)) return;
  throw UsageError(
      "the step of a ShardedDataParallel needs a ShardedOptimizer that was made with it, because "
      "no rank has all gradients: ShardedOptimizer(std::move(optimizer), replica)");
}

torch::Tensor ShardExchange::gradient_of(std::size_t flat, const FlatShard::Part& part) const {
  if (!has_gradient({flat, part.rows.array})) return {};
  return window(sums_->sum_of(*sum_of_[flat]), part.offset, {part.values.numel()}, {1});
}

bool ShardExchange::has_gradient(PlaceInFlat place) const {
  const auto sum = sum_of_[place.flat];
  return sum && used_[units_.first_trained_of[place.flat] + place.array] != 0 &&
         sums_->sum_of(*sum).defined();
}

void ShardExchange::begin_update() {
  whole_->begin_update();
}

void ShardExchange::publish() {
  whole_->end_update();
}

}  // namespace ddp
