// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/errors.h"

namespace ddp::pipeline {
namespace {

using enum OperationKind;

double time_of(const Operation& operation, std::span<const StageTimes> times) {
  const auto& stage = times[static_cast<std::size_t>(operation.stage)];
  if (operation.kind == forward) return stage.forward;
  if (operation.kind == input_gradient) return stage.input_gradient;
  if (operation.kind == weight_gradient) return stage.weight_gradient;
  return stage.input_gradient + stage.weight_gradient;
}

// When the results of the operations so far were ready.
class Results {
 public:
  Results(const Layout& layout, double message)
      : last_(layout.stages() - 1), message_(layout.ranks > 1 ? message : 0) {}

  void add(const Operation& operation, double end) {
    if (operation.kind != weight_gradient) ends_[key(operation)] = end;
  }

  // The time from which the operation could run; nullopt while its inputs are missing.
  std::optional<double> ready(const Operation& operation) const {
    const int stage = operation.stage;
    const int i = operation.micro_batch;
    if (operation.kind == forward) return stage == 0 ? 0.0 : find(true, stage - 1, i, message_);
    if (operation.kind == weight_gradient) return find(false, stage, i);
    const auto own = find(true, stage, i);
    const auto next = stage == last_ ? own : find(false, stage + 1, i, message_);
    if (!own || !next) return std::nullopt;
    return std::max(*own, *next);
  }

 private:
  using Key = std::pair<bool, std::pair<int, int>>;
  static Key key(const Operation& operation) {
    return {operation.kind == forward, {operation.stage, operation.micro_batch}};
  }
  std::optional<double> find(bool is_forward, int stage, int micro_batch, double later = 0) const {
    const auto found = ends_.find({is_forward, {stage, micro_batch}});
    return found == ends_.end() ? std::nullopt : std::optional(found->second + later);
  }

  int last_;
  double message_;
  std::map<Key, double> ends_;
};

struct SimulatedRank {
  std::vector<Operation> table;
  std::size_t next = 0;
  double now = 0;
  double busy = 0;
  int kept = 0;
  int most_kept = 0;

  bool done() const { return next == table.size(); }

  // Runs what can run; returns whether that was anything.
  bool run(Results& results, const OperationSeconds& seconds, bool splits_backward) {
    const auto before = next;
    for (; !done(); ++next) {
      const auto& operation = table[next];
      const auto ready = results.ready(operation);
      if (!ready) break;
      const double time = seconds(operation);
      now = std::max(now, *ready) + time;
      busy += time;
      results.add(operation, now);
      if (operation.kind == forward) most_kept = std::max(most_kept, ++kept);
      if (operation.kind == (splits_backward ? weight_gradient : backward)) --kept;
    }
    return next > before;
  }
};

Simulation summary_of(const std::vector<SimulatedRank>& ranks) {
  Simulation result;
  for (const auto& rank : ranks) {
    result.span = std::max(result.span, rank.now);
    result.busy.push_back(rank.busy);
    result.kept.push_back(rank.most_kept);
  }
  const double busy = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  if (result.span > 0) result.bubble = 1 - busy / (result.span * static_cast<double>(ranks.size()));
  return result;
}

}  // namespace

Simulation simulate(Schedule schedule, const Layout& layout, std::span<const StageTimes> times,
                    double message) {
  if (times.size() != static_cast<std::size_t>(layout.stages())) {
    throw UsageError(fmt::format("the simulation needs the times of {} stages, but has those of {}",
                                 layout.stages(), times.size()));
  }
  return simulate(
      schedule, layout, [times](const Operation& operation) { return time_of(operation, times); },
      message);
}

Simulation simulate(Schedule schedule, const Layout& layout, const OperationSeconds& seconds,
                    double message) {
  require_possible(schedule, layout);
  std::vector<SimulatedRank> ranks(static_cast<std::size_t>(layout.ranks));
  for (int r = 0; r < layout.ranks; ++r) {
    ranks[static_cast<std::size_t>(r)].table = operations(schedule, layout, r);
  }
  Results results(layout, message);
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& rank : ranks) {
      moved |= rank.run(results, seconds, schedule == Schedule::zb_h1);
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].done()) continue;
    throw std::logic_error(fmt::format("rank {} waits forever before {}", r,
                                       to_string(ranks[r].table[ranks[r].next])));
  }
  return summary_of(ranks);
}

Simulation simulate(Schedule schedule, const Layout& layout, const StageTimes& times) {
  require_possible(schedule, layout);
  return simulate(schedule, layout,
                  std::vector<StageTimes>(static_cast<std::size_t>(layout.stages()), times));
}

}  // namespace ddp::pipeline
