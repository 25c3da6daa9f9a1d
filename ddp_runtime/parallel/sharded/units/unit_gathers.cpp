// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/units/unit_gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/errors.h"

namespace ddp {
namespace {

constexpr std::size_t kRoot = ShardedUnits::kRoot;

// In the order in which they were registered.
UnitOrder::Units all_but_the_root(const ShardedUnits& units) {
  UnitOrder::Units all;
  for (std::size_t unit = kRoot + 1; unit < units.all.size(); ++unit) all.push_back(unit);
  return all;
}

}  // namespace

UnitGathers::UnitGathers(comm::Group& sharing, const torch::nn::Module& module,
                         const std::vector<NamedTensor>& parameters, const ShardOptions& options)
    : group_(sharing.channel("gathered parameters")),
      kept_(kept_with(options, module)),
      reshard_after_forward_(options.reshard_after_forward),
      units_(make_sharded_units(group_, module, parameters, options, kept_, this)),
      whole_(sharing, kept_, units_),
      order_(kept_ == FlatShard::Kept::part ? all_but_the_root(units_) : UnitOrder::Units()) {
  watch_reads();
}

UnitGathers::~UnitGathers() {
  if (!misuse_.empty()) TORCH_WARN(misuse_);  // no call came after it
}

// Takes part in the gathers of all units; those that this rank does not want are given back.
void UnitGathers::gather_each(const UnitOrder::Units& units, std::optional<std::size_t> wanted) {
  for (const std::size_t unit : units) {
    whole_.start_gather(unit);
    if (unit == wanted || unit == kRoot) continue;
    const bool is_over = in_backward_ ? has_all_gradients(unit) : !keeps_after_forward(unit);
    if (is_over) whole_.release(unit);
  }
}

// Whether it is whole until backward.
bool UnitGathers::keeps_after_forward(std::size_t unit) const {
  return in_step_ && (!reshard_after_forward_ || order_.is_last(unit));
}

// Whether nothing of this backward reads the unit any more. See Note [A unit's backward].
bool UnitGathers::has_all_gradients(std::size_t unit) const {
  return missing_in_unit_[unit] == 0 && !units_.all[unit].has_frozen;
}

// --- Calls

std::optional<std::size_t> UnitGathers::find_unit(const torch::nn::Module& module) const {
  if (kept_ != FlatShard::Kept::part) return std::nullopt;
  const auto found = std::ranges::find(units_.all, &module, &ShardedUnits::Unit::module);
  if (found == units_.all.end()) return std::nullopt;
  return static_cast<std::size_t>(found - units_.all.begin());
}

void UnitGathers::enter(std::size_t unit) {
  const std::lock_guard lock(mutex_);
  require_no_misuse();
  if (in_backward_) {  // activation checkpointing calls the unit again
    gather_each(order_.back_to(unit), unit);
  } else {
    // Without ForwardPasses, a pass begins with the root.
    if (unit == kRoot && !in_step_ && !in_passes_) order_.begin_forward();
    if (unit != kRoot) gather_each(call(unit), unit);
  }
  whole_.start_gather(unit);
  const auto ahead = in_backward_ ? order_.previous() : order_.next();
  if (ahead && unit != kRoot) whole_.start_gather(*ahead);
  whole_.wait_for(unit);
  whole_.enter(unit);
  if (unit != kRoot) ++entered_;
  watch_reads();
}

// Outside of steps, the ranks do not compare what they have gathered.
UnitOrder::Units UnitGathers::call(std::size_t unit) {
  if (in_passes_ && group_.size() > 1 && !order_.is_ahead(unit)) {
    throw UsageError(fmt::format(
        "the unit '{}' is called out of turn in a pass of ForwardPasses: call begin() before each "
        "forward, and register units in the order of their calls, or make a training step first, "
        "which learns their order",
        units_.all[unit].name));
  }
  return order_.call(unit);
}

void UnitGathers::leave(std::size_t unit) noexcept {
  const std::lock_guard lock(mutex_);
  whole_.leave(unit);
  if (unit != kRoot) --entered_;
  watch_reads();
  const bool backward_follows = torch::GradMode::is_enabled();
  if (in_backward_ && backward_follows) return;
  if (unit == kRoot && (in_step_ || in_passes_)) return;
  if (!in_backward_ && keeps_after_forward(unit)) return;
  whole_.release(unit);
}

void UnitGathers::expect_backward(std::size_t unit, const std::vector<torch::Tensor>& outputs) {
  if (!torch::GradMode::is_enabled() || unit == kRoot) return;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    output.register_hook([this, unit, alive = std::weak_ptr(alive_)](const torch::Tensor&) {
      if (alive.lock()) before_backward(unit);
    });
  }
}

// --- Reads outside of calls

// See Note [Reads outside of units]. Not under the lock, which the reader may hold.
void UnitGathers::note_read(const torch::Tensor& parameter, const char* reader) {
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

void UnitGathers::require_no_misuse() {
  if (misuse_.empty()) return;
  whole_.forget_all();
  throw UsageError(std::exchange(misuse_, std::string()));
}

void UnitGathers::watch_reads() {
  if (has_learned_ && (entered_ > 0 || in_backward_)) return reads_.reset();
  if (!reads_ && kept_ == FlatShard::Kept::part && group_.size() > 1) reads_.emplace();
}

// --- Passes between steps

void UnitGathers::begin_passes() {
  if (in_step_) {
    throw UsageError(
        "ForwardPasses are for passes between two steps, but a step has begun; finish it first");
  }
  in_passes_ = true;
  whole_.start_gather(kRoot);
  whole_.wait_for(kRoot);
}

void UnitGathers::begin_pass() {
  order_.begin_forward();
}

void UnitGathers::end_pass() {
  require_no_misuse();
  gather_each(order_.skip_rest(), std::nullopt);
}

void UnitGathers::end_passes() noexcept {
  in_passes_ = false;
  // Units that were gathered ahead, too, if an exception ends the passes.
  whole_.release_each();
}

// --- A step

// Parameters may be frozen between two steps.
void UnitGathers::find_frozen() {
  for (auto& unit : units_.all) unit.has_frozen = unit.has_frozen_flat;
  for (const auto& trained : units_.trained) {
    if (!trained.parameter.tensor.requires_grad()) units_.all[trained.unit].has_frozen = true;
  }
}

bool UnitGathers::adopt_learned_order() {
  if (!learned_) return false;
  order_ = UnitOrder(*std::exchange(learned_, std::nullopt));
  return true;
}

void UnitGathers::begin_step() {
  find_frozen();
  whole_.release_each();
  whole_.begin_step();
  in_step_ = true;
  in_backward_ = false;
  watch_reads();
  order_.begin_forward();
  whole_.start_gather(kRoot);
  whole_.wait_for(kRoot);
}

void UnitGathers::end_forward(bool here) {
  const std::lock_guard lock(mutex_);
  require_no_misuse();
  // All ranks go through the same graph again.
  if (!here && order_.calls().empty()) return;
  gather_each(order_.skip_rest(), std::nullopt);
}

void UnitGathers::begin_backward() {
  in_backward_ = true;
  watch_reads();
  order_.begin_backward();
  missing_in_unit_.assign(units_.all.size(), 0);
  for (const auto& trained : units_.trained) ++missing_in_unit_[trained.unit];
}

void UnitGathers::before_backward(std::size_t unit) {
  const std::lock_guard lock(mutex_);
  if (!in_backward_) {  // of a penalty, for example, by torch::autograd::grad()
    whole_.start_gather(unit);
    return whole_.wait_for(unit);
  }
  gather_each(order_.back_to(unit), unit);
  if (!has_all_gradients(unit)) whole_.start_gather(unit);
  if (const auto previous = order_.previous()) whole_.start_gather(*previous);
  whole_.wait_for(unit);
}

void UnitGathers::note_gradient(std::size_t unit) {
  --missing_in_unit_[unit];
  // Before its turn, all ranks still have a unit, or not, alike.
  if (unit != kRoot && has_all_gradients(unit) && order_.was_reached(unit)) whole_.release(unit);
}

void UnitGathers::go_back_to(std::size_t unit) {
  gather_each(order_.back_to(unit), std::nullopt);
}

void UnitGathers::end_backward(bool last) {
  for (const std::size_t unit : order_.skip_rest_of_backward()) {
    whole_.start_gather(unit);
    whole_.release(unit);
  }
  for (std::size_t unit = 0; unit < units_.all.size(); ++unit) {
    if (unit != kRoot || last) whole_.release(unit);
  }
  in_backward_ = false;
  watch_reads();
  in_step_ = !last;
  if (last) whole_.end_step();
  if (!order_.calls().empty()) calls_ = order_.calls();
  order_.begin_forward();
}

void UnitGathers::learn_order(comm::Group& all) {
  if (has_learned_ || kept_ != FlatShard::Kept::part) return;
  const int mine = calls_.empty() ? all.size() : all.rank();
  const int leader = -all.all_reduce_value<std::int32_t>(-mine, comm::ReduceOp::max);
  if (leader == all.size()) return;
  has_learned_ = true;
  std::vector<std::int64_t> calls(calls_.begin(), calls_.end());
  auto count = static_cast<std::int64_t>(calls.size());
  all.broadcast(comm::buffer_of(count), leader, "number of units' calls").wait();
  calls.resize(static_cast<std::size_t>(count));
  all.broadcast(comm::buffer_of(std::span(calls)), leader, "order of units").wait();
  const auto learned = order_.learned_from({calls.begin(), calls.end()});
  if (learned != order_.expected()) learned_ = learned;
}

}  // namespace ddp
