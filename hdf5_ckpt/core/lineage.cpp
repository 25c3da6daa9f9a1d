// SPDX-License-Identifier: Apache-2.0
// The rule of Note [One line of checkpoints].

#include "hdf5_ckpt/core/lineage.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

#include "hdf5_ckpt/core/names.h"

namespace ddp::ckpt {
namespace {

bool was_state_of(const StartingPoint& start, std::uint32_t manifest_crc32c) {
  if (manifest_crc32c == start.crc32c) return true;
  if (!start.lineage) return false;
  const auto& replaced = start.lineage->replaced;
  return std::find(replaced.begin(), replaced.end(), manifest_crc32c) != replaced.end();
}

// True if a checkpoint with that lineage was reached from `start`. A deleted starting point is
// known only by its path.
bool comes_from(const StartingPoint& start, const std::optional<Lineage>& lineage) {
  if (!lineage) return false;
  return std::any_of(lineage->origins.begin(), lineage->origins.end(), [&](const Origin& origin) {
    if (!start.step) return origin.path == start.path;
    return origin.step == *start.step && was_state_of(start, origin.crc32c);
  });
}

// True if `start` cannot have been reached from `ancestor`, a checkpoint of the same run. A run
// only ever adds origins: those of an ancestor are the first origins of `start`, and the ancestor's
// step is not later than the next origin of `start`, where the run started again.
bool on_another_branch(const StartingPoint& start, const Ancestor& ancestor) {
  if (ancestor.step > *start.step) return true;
  if (!start.lineage || !ancestor.lineage || ancestor.lineage->run != start.lineage->run)
    return false;
  const auto& line = start.lineage->origins;
  const auto& origins = ancestor.lineage->origins;
  if (line.size() >= kMaxOrigins) return false;  // the first ones may have been dropped
  const auto same = [](const Origin& a, const Origin& b) {
    return a.step == b.step && a.crc32c == b.crc32c;
  };
  if (origins.size() > line.size()) return true;
  if (!std::equal(origins.begin(), origins.end(), line.begin(), same)) return true;
  return origins.size() < line.size() && ancestor.step > line[origins.size()].step;
}

bool same_run(const StartingPoint& start, std::span<const Ancestor> there) {
  if (start.inside) return true;
  if (!start.lineage) return false;
  return std::any_of(there.begin(), there.end(), [&](const Ancestor& ancestor) {
    return ancestor.lineage && ancestor.lineage->run == start.lineage->run;
  });
}

}  // namespace

std::string new_run_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

ResumePlan plan_resume(const StartingPoint& start, std::span<const Ancestor> there,
                       const std::string& directory) {
  ResumePlan plan;
  for (const Ancestor& ancestor : there) {
    if (ancestor.step < start.step.value_or(0) || !comes_from(start, ancestor.lineage)) continue;
    const bool first = plan.from != ResumePlan::From::newest;
    plan.from = ResumePlan::From::newest;
    plan.oldest = first ? ancestor.step : std::min(plan.oldest, ancestor.step);
  }
  if (plan.from == ResumePlan::From::newest) return plan;
  // Opening a missing checkpoint reports that it is missing.
  if (!start.step || there.empty() || same_run(start, there)) {
    plan.from = ResumePlan::From::start;
    if (!start.step) return plan;
    for (const Ancestor& ancestor : there)
      if (on_another_branch(start, ancestor)) plan.set_aside.push_back(ancestor.step);
    std::sort(plan.set_aside.begin(), plan.set_aside.end(), std::greater<>());
    return plan;
  }
  plan.refusal = fmt::format(
      "{} holds checkpoints of another run, which did not start from {}; use --resume auto to "
      "resume from them, or another --checkpoint-dir",
      directory, start.path);
  return plan;
}

Lineage lineage_from(const StartingPoint& start, const std::string& new_run, bool same_directory) {
  Lineage lineage;
  if (start.lineage) lineage.origins = start.lineage->origins;
  const bool stays = same_directory && start.lineage && !start.lineage->run.empty();
  lineage.run = stays ? start.lineage->run : new_run;
  if (!start.step) return lineage;
  lineage.parent = start.step;
  // A manifest stores a user's path only if it is printable text.
  const bool readable = label_problem(start.path).empty();
  lineage.origins.push_back({*start.step, start.crc32c, readable ? start.path : std::string()});
  if (lineage.origins.size() > kMaxOrigins) lineage.origins.erase(lineage.origins.begin());
  return lineage;
}

}  // namespace ddp::ckpt
