// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/units/whole_units.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"

namespace ddp {

bool WholeUnits::is_whole(std::size_t unit) const {
  return std::ranges::all_of(units_.all[unit].flats,
                             [&](std::size_t flat) { return units_.flats[flat]->is_whole(); });
}

void WholeUnits::start_gather(std::size_t unit) {
  if (is_whole(unit)) return;
  if (in_step_) gathered_.push_back(unit);
  const auto label = fmt::format("parameters of {}", units_.all[unit].name);
  for (const std::size_t flat : units_.all[unit].flats) {
    units_.flats[flat]->start_gather(memory_, label);
  }
}

void WholeUnits::wait_for(std::size_t unit) {
  for (const std::size_t flat : units_.all[unit].flats) {
    units_.flats[flat]->wait();
    if (in_step_) note(*units_.flats[flat], units_.all[unit].name);
  }
}

// Each gather of the step once.
void WholeUnits::note(FlatShard& flat, const std::string& unit) {
  const auto work = flat.take_gather();
  if (!work || !work->done()) return;
  const auto times = work->times();
  const auto bytes = static_cast<std::size_t>(flat.elements()) * flat.options().dtype().itemsize();
  spans_.push_back({fmt::format("parameters of {}", unit), bytes, {times.started, times.finished}});
}

void WholeUnits::release(std::size_t unit) {
  if (requests_ > 0 || units_.all[unit].entered > 0) return;
  for (const std::size_t flat : units_.all[unit].flats) {
    units_.flats[flat]->release(memory_);
    if (in_step_) note(*units_.flats[flat], units_.all[unit].name);
  }
}

void WholeUnits::release_each() {
  for (std::size_t unit = 0; unit < units_.all.size(); ++unit) release(unit);
}

void WholeUnits::forget_all() {
  for (const auto& flat : units_.flats) flat->release(memory_);
}

void WholeUnits::begin_step() {
  gathered_.clear();
  spans_.clear();
  in_step_ = true;
}

void WholeUnits::gather_on_request() {
  require_unchanged();
  for (std::size_t unit = 0; unit < units_.all.size(); ++unit) start_gather(unit);
  for (std::size_t unit = 0; unit < units_.all.size(); ++unit) wait_for(unit);
  if (kept_ == FlatShard::Kept::common) {
    for (const auto& flat : units_.flats) flat->copy_common(memory_);
    sharing_.barrier("copies of common parameters").wait();
  }
  ++requests_;
}

void WholeUnits::keep_changes() {
  for (const auto& flat : units_.flats) flat->keep_changes();
  if (kept_ == FlatShard::Kept::common) sharing_.barrier("changed parameters").wait();
}

void WholeUnits::release_on_request() noexcept {
  if (--requests_ > 0) return;
  release_each();
  for (const auto& flat : units_.flats) flat->note_versions();
}

void WholeUnits::require_not_requested(const char* what) const {
  if (requests_ == 0 || kept_ == FlatShard::Kept::whole) return;
  throw UsageError(fmt::format(
      "{} while WholeParameters of the replica exist: their values would be those from before the "
      "update; destroy them first",
      what));
}

void WholeUnits::begin_update() {
  require_not_requested("an optimizer makes a step");
  release_each();
  if (kept_ != FlatShard::Kept::common) return;
  require_unchanged();
  sharing_.barrier("end of all reads of common parameters").wait();
}

void WholeUnits::end_update() {
  if (kept_ == FlatShard::Kept::common) {
    for (const auto& flat : units_.flats) flat->note_versions();
    return sharing_.barrier("updated common parameters").wait();
  }
  for (const auto& unit : units_.all) {
    for (const std::size_t flat : unit.flats) {
      if (!units_.is_trained(flat)) continue;
      units_.flats[flat]->publish(fmt::format("updated parameters of {}", unit.name));
    }
  }
  for (std::size_t unit = 0; unit < units_.all.size(); ++unit) wait_for(unit);
}

void WholeUnits::require_unchanged() const {
  if (requests_ > 0) return;  // changes of copies
  for (const auto& flat : units_.flats) {
    const auto changed = flat->changed_array();
    if (!changed) continue;
    throw UsageError(fmt::format(
        "{} was changed outside of the optimizer, but the ranks of a node have it in common, so "
        "each of them has changed it; change parameters while WholeParameters exist, and call "
        "their keep_changes()",
        units_.name_of(flat->arrays()[*changed])));
  }
}

}  // namespace ddp
