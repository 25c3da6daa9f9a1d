// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/contributions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <utility>

#include "ddp_runtime/report/analysis/late_rank.h"
#include "ddp_runtime/report/analysis/sample.h"
#include "ddp_runtime/report/analysis/student.h"
#include "ddp_runtime/report/document/format.h"

namespace ddp::report {
namespace {

// The runs of a group whose step can be compared.
std::vector<const RunRecord*> usable(const ScalingPoint& group) {
  std::vector<const RunRecord*> runs;
  for (const auto& run : group.runs) {
    const bool known = run.step.mean && *run.step.mean > 0 && run.global_batch &&
                       *run.global_batch > 0 && std::isfinite(*run.global_batch / *run.step.mean);
    if (known) runs.push_back(&run);
  }
  return runs;
}

// A single rank waits for no other, and does not communicate.
std::optional<double> recorded(const RunRecord& run, Phase phase) {
  const auto& seconds = run.step.parts[index_of(phase)];
  const bool for_others = phase == Phase::waiting || phase == Phase::exposed_comm;
  return !seconds && for_others && run.world_size == 1 ? std::optional(0.0) : seconds;
}

using Runs = std::vector<const RunRecord*>;

bool all_record(const Runs& runs, Phase phase) {
  return std::ranges::all_of(
      runs, [phase](const RunRecord* run) { return recorded(*run, phase).has_value(); });
}

// Which phases both groups record in all runs.
struct Split {
  std::array<bool, kPhases> has{};

  Split(const Runs& a, const Runs& b) {
    for (const auto& entry : kPhaseNames) {
      has[index_of(entry.phase)] = all_record(a, entry.phase) && all_record(b, entry.phase);
    }
    for (const auto* one : a) {
      for (const auto* other : b) {
        if (!have_alike_waiting(*one, *other)) has[index_of(Phase::waiting)] = false;
      }
    }
  }
  double part(const RunRecord& run, Phase phase) const {
    const double seconds = recorded(run, phase).value_or(0);
    const bool with_waiting = phase == Phase::exposed_comm && !has[index_of(Phase::waiting)];
    return with_waiting ? seconds + run.step.part(Phase::waiting) : seconds;
  }
  double unaccounted(const RunRecord& run) const {
    double rest = *run.step.mean;
    for (const auto& entry : kPhaseNames) {
      if (has[index_of(entry.phase)]) rest -= part(run, entry.phase);
    }
    return rest;
  }
};

double samples(const RunRecord& run) {
  return *run.global_batch / run.world_size;
}

// Values per sample of a rank, as fractions of `whole`.
template <typename Value>
Sample sample_of_runs(const Runs& runs, double whole, const Value& value) {
  std::vector<double> values;
  values.reserve(runs.size());
  for (const auto* run : runs) values.push_back(value(*run) / samples(*run) / whole);
  return sample_of(values);
}

double mean_step_of(const RunRecord& run) {
  return *run.step.mean;
}

template <typename Value>
Contribution contribution(const Runs& a, const Runs& b, const Value& value) {
  const double whole = sample_of_runs(a, 1, mean_step_of).mean;
  const auto to = sample_of_runs(b, whole, value);
  auto from = sample_of_runs(a, whole, value);
  Contribution result;
  result.part = to.mean - from.mean;
  result.a = from.mean * whole * samples(*a.front());
  result.b = to.mean * whole * samples(*a.front());
  result.single_runs = a.size() + b.size() == 2;
  // A's step, of which this is a fraction, varies, too: what a run adds beyond its step's part.
  const double mean = from.mean;
  from = sample_of_runs(
      a, whole, [&](const RunRecord& run) { return value(run) + result.part * mean_step_of(run); });
  from.mean = mean;
  result.interval = interval_of_equal_noise(to, from, student_99th);
  return result;
}

struct Late {
  std::string who;     // empty: no rank, or not in more than half of the runs
  double seconds = 0;  // by which it is late, mean of all runs
};

Late late_rank_of(const ScalingPoint& group) {
  std::map<std::string, std::vector<double>> named;
  for (const auto& run : group.runs) {
    if (const auto cause = find_cause(run); cause.late) {
      named[names_of(*cause.late)].push_back(cause.late->seconds);
    }
  }
  for (const auto& [name, seconds] : named) {
    if (2 * seconds.size() <= group.runs.size()) continue;
    const auto sample = sample_of(seconds);
    return {name, sample.mean * sample.count / static_cast<double>(group.runs.size())};
  }
  return {};
}

// The rank to which at least half of the change in waiting is due.
std::string who_of(const Contribution& waiting, const ScalingPoint& a, const ScalingPoint& b) {
  const auto before = late_rank_of(a);
  const auto after = late_rank_of(b);
  const auto& more = waiting.part > 0 ? after : before;
  const auto& less = waiting.part > 0 ? before : after;
  const double change = more.seconds - (less.who == more.who ? less.seconds : 0);
  return change >= std::abs(waiting.b - waiting.a) / 2 ? more.who : "";
}

}  // namespace

std::string Contribution::full_name() const {
  return who.empty() ? name : fmt::format("waiting for {}", who);
}

bool Contribution::is_worth_telling() const {
  constexpr double kWorthTelling = 0.01;
  if (!std::isfinite(part) || std::abs(part) < kWorthTelling) return false;
  return interval ? !interval->contains(0) : single_runs;
}

std::vector<Contribution> contributions(const ScalingPoint& a, const ScalingPoint& b) {
  const auto from = usable(a);
  const auto to = usable(b);
  if (from.empty() || to.empty()) return {};
  const Split split(from, to);
  std::vector<Contribution> list;
  list.reserve(kPhases + 1);
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    if (!split.has[index_of(phase)]) continue;
    auto one =
        contribution(from, to, [&, p = phase](const RunRecord& run) { return split.part(run, p); });
    one.kind = std::string(key);
    one.name = std::string(name);
    if (phase == Phase::waiting) one.who = who_of(one, a, b);
    list.push_back(std::move(one));
  }
  auto rest = contribution(from, to, [&](const RunRecord& run) { return split.unaccounted(run); });
  rest.kind = rest.name = "unaccounted";
  list.push_back(std::move(rest));
  const auto size = [](const Contribution& one) {
    return std::isfinite(one.part) ? std::abs(one.part) : 0;
  };
  std::ranges::stable_sort(list, std::greater<>(), size);
  return list;
}

std::string sentence_of(const std::vector<Contribution>& contributions) {
  constexpr std::size_t kMaxTold = 3;
  std::string text;
  std::size_t told = 0;
  for (const auto& one : contributions) {
    if (told == kMaxTold) break;
    if (!one.is_worth_telling()) continue;
    text +=
        fmt::format("{}{} {}", told++ == 0 ? "" : ", ", signed_percent(one.part), one.full_name());
  }
  return text;
}

}  // namespace ddp::report
