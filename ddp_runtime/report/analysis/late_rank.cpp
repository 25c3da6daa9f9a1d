// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/late_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "ddp_runtime/report/document/format.h"

namespace ddp::report {
namespace {

// Fractions of the step's time. Estimated waiting needs more evidence.
constexpr double kWorthNaming = 0.05;
constexpr double kWorthNamingEstimated = 0.10;
constexpr double kLeastSeconds = 20e-6;
// The factor from the median absolute deviation to the standard deviation of a normal distribution,
// times the number of standard deviations above which a rank counts as late.
constexpr double kDeviations = 3.5 * 1.4826;
constexpr double kMaxRanksNamed = 3;

using Ranks = std::vector<const RankRecord*>;

double percentile_of(std::vector<double> values, double p) {
  const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

double median_deviation(const std::vector<double>& values, double middle) {
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::abs(value - middle));
  return percentile_of(std::move(deviations), 0.5);
}

double waiting_of(const RankRecord& rank) {
  return rank.step.part(Phase::waiting);
}

std::vector<double> waits_of(const Ranks& ranks) {
  std::vector<double> waits;
  waits.reserve(ranks.size());
  for (const RankRecord* rank : ranks) waits.push_back(waiting_of(*rank));
  return waits;
}

// Whether the rank was last more often than chance allows: in more than half of the steps,
// plus three and a half standard deviations of the same number of coin tosses.
bool late_throughout(const RankRecord& rank) {
  if (!rank.late_share || !rank.compared_steps) return true;
  const double steps = std::max(*rank.compared_steps, 1.0);
  return *rank.late_share > 0.5 + 3.5 * 0.5 / std::sqrt(steps);
}

// The difference of means that noise alone can explain, for runs that did not count late steps.
// Computed from the spread of the step times and the number of steps.
double chance(const RunRecord& run) {
  if (!run.waiting_estimated || !run.step.p50 || !run.step.p95 || !run.steps) return 0;
  const double deviation = std::max(*run.step.p95 - *run.step.p50, 0.0) / 1.2;
  return 4.5 * deviation * std::sqrt(2 / std::max(*run.steps, 1.0));
}

double median_part(const Ranks& ranks, Phase phase) {
  std::vector<double> parts;
  parts.reserve(ranks.size());
  for (const RankRecord* rank : ranks) parts.push_back(rank->step.part(phase));
  return percentile_of(std::move(parts), 0.5);
}

void find_phase(LateRanks& found, const Ranks& late, const Ranks& others) {
  for (const Phase phase : {Phase::data, Phase::forward, Phase::backward, Phase::optimizer,
                            Phase::checkpoint, Phase::other}) {
    const double more = median_part(late, phase) - median_part(others, phase);
    if (more <= found.phase_seconds) continue;
    found.phase_seconds = more;
    found.phase = phase;
  }
  if (found.phase_seconds < found.seconds / 4) found.phase.reset();
}

std::optional<LateRanks> find_late(const RunRecord& run) {
  Ranks ranks;
  for (const auto& rank : run.ranks) {
    if (rank.step.parts[index_of(Phase::waiting)]) ranks.push_back(&rank);
  }
  if (ranks.size() < 2 || ranks.size() < run.ranks.size() || !run.step.mean) return std::nullopt;
  const auto waits = waits_of(ranks);
  const double reference = percentile_of(waits, 0.75);
  std::vector<double> upper = waits;
  std::sort(upper.begin(), upper.end());
  upper.erase(upper.begin(), upper.begin() + static_cast<std::ptrdiff_t>(upper.size() / 2));
  const double share = run.waiting_estimated ? kWorthNamingEstimated : kWorthNaming;
  const double least = std::max({share * *run.step.mean, kLeastSeconds, chance(run),
                                 kDeviations * median_deviation(upper, reference)});
  Ranks late;
  Ranks others;
  for (const RankRecord* rank : ranks) {
    const bool is_late = reference - waiting_of(*rank) > least && late_throughout(*rank);
    (is_late ? late : others).push_back(rank);
  }
  if (late.empty() || late.size() > others.size()) return std::nullopt;
  LateRanks found;
  found.node = late.front()->node;
  for (const RankRecord* rank : late) {
    found.ranks.push_back(rank->rank);
    if (rank->node != found.node) found.node.clear();
  }
  found.seconds = percentile_of(waits_of(others), 0.5) - percentile_of(waits_of(late), 0.5);
  find_phase(found, late, others);
  return found;
}

// ---- CPUs

struct NodeRanks {
  std::map<std::vector<int>, std::vector<const RankRecord*>> by_mask;
};

SharedProcessors share_of(const std::string& node, const std::vector<int>& mask,
                          const NodeRanks& ranks) {
  SharedProcessors share{node, 0, static_cast<int>(mask.size()), 0, false};
  for (const auto& [other, members] : ranks.by_mask) {
    if (!std::includes(mask.begin(), mask.end(), other.begin(), other.end())) continue;
    share.ranks += static_cast<int>(members.size());
    for (const RankRecord* rank : members) share.threads += std::max(rank->threads.value_or(1), 1);
  }
  share.by_ranks = share.ranks > share.processors;
  return share;
}

double crowding(const SharedProcessors& share) {
  const int users = share.by_ranks ? share.ranks : share.threads;
  return static_cast<double>(users) / share.processors + (share.by_ranks ? 1e6 : 0);
}

// The ranks whose CPU masks lie within one set of CPUs must not outnumber that set.
std::optional<SharedProcessors> find_shared(const RunRecord& run) {
  std::map<std::string, NodeRanks> nodes;
  for (const auto& rank : run.ranks) {
    if (!rank.processors.empty()) nodes[rank.node].by_mask[rank.processors].push_back(&rank);
  }
  std::optional<SharedProcessors> worst;
  for (const auto& [node, ranks] : nodes) {
    std::set<int> all;
    for (const auto& [mask, members] : ranks.by_mask) all.insert(mask.begin(), mask.end());
    std::vector<std::vector<int>> sets{{all.begin(), all.end()}};
    for (const auto& [mask, members] : ranks.by_mask) sets.push_back(mask);
    for (const auto& set : sets) {
      const auto share = share_of(node, set, ranks);
      if (share.ranks <= share.processors && share.threads <= share.processors) continue;
      if (!worst || crowding(share) > crowding(*worst)) worst = share;
    }
  }
  return worst;
}

// ---- text

std::string name_of(const std::optional<Phase>& phase) {
  for (const auto& entry : kPhaseNames) {
    if (phase && entry.phase == *phase) {
      return entry.phase == Phase::other ? "the time between the phases" : std::string(entry.name);
    }
  }
  return "";
}

}  // namespace

Cause find_cause(const RunRecord& run) {
  return {find_shared(run), find_late(run)};
}

std::string names_of(const LateRanks& late) {
  const std::string where = late.node.empty() ? "" : fmt::format(" on {}", shortened(late.node));
  const auto count = static_cast<double>(late.ranks.size());
  if (count > kMaxRanksNamed) return fmt::format("{} ranks{}", late.ranks.size(), where);
  std::string list;
  for (std::size_t i = 0; i < late.ranks.size(); ++i) {
    list += i == 0 ? "" : i + 1 == late.ranks.size() ? " and " : ", ";
    list += std::to_string(late.ranks[i]);
  }
  return fmt::format("rank{} {}{}", late.ranks.size() == 1 ? "" : "s", list, where);
}

std::string sentence_of(const SharedProcessors& shared) {
  const std::string on = shared.node.empty() ? "" : fmt::format(" on {}", shortened(shared.node));
  if (shared.by_ranks) {
    return fmt::format("{} share {}{}.", counted(shared.ranks, "rank"),
                       counted(shared.processors, "CPU"), on);
  }
  return fmt::format("{} with {} together share {}{}.", counted(shared.ranks, "rank"),
                     counted(shared.threads, "thread"), counted(shared.processors, "CPU"), on);
}

std::string sentence_of(const LateRanks& late) {
  const bool one = late.ranks.size() == 1;
  std::string text =
      fmt::format("{} arrive{} {} ms later than the others in a step", capitalized(names_of(late)),
                  one ? "s" : "", milliseconds(late.seconds));
  if (late.phase) {
    text += fmt::format(": {} take{} {} ms longer", name_of(late.phase), "s",
                        milliseconds(late.phase_seconds));
  }
  return text + ".";
}

std::string advice_against(const SharedProcessors& shared) {
  if (shared.by_ranks) {
    return "Give each rank its own CPU: fewer ranks per node, or more CPUs for them "
           "(--ntasks-per-node, --cpus-per-task, --cpu-bind); until then the times say little "
           "about the network.";
  }
  return "Give each thread its own CPU: fewer threads per rank (OMP_NUM_THREADS, --threads), "
         "or more CPUs (--cpus-per-task).";
}

std::string advice_against(const LateRanks& late) {
  const std::string who = names_of(late);
  if (late.phase == Phase::data) {
    return fmt::format("Check {}: its storage, its loader threads, the size of its samples.", who);
  }
  if (late.phase == Phase::checkpoint) {
    return fmt::format("Check {}: the speed of its checkpoint directory.", who);
  }
  return fmt::format(
      "Check {}: its clock and temperature, other programs on its CPUs, its binding and threads; "
      "ddp-check node checks the machine.",
      who);
}

std::string sentences_of(const Cause& cause) {
  std::string text;
  if (cause.shared) text += sentence_of(*cause.shared);
  if (cause.shared && cause.late) text += ' ';
  if (cause.late) text += sentence_of(*cause.late);
  return text;
}

std::string advice_against(const Cause& cause) {
  if (cause.shared) return advice_against(*cause.shared);
  return cause.late ? advice_against(*cause.late) : "";
}

nlohmann::json json_of(const Cause& cause) {
  nlohmann::json result = {{"shared_processors", nullptr}, {"late_ranks", nullptr}};
  if (const auto& shared = cause.shared) {
    result["shared_processors"] = {{"node", shared->node},
                                   {"ranks", shared->ranks},
                                   {"threads", shared->threads},
                                   {"processors", shared->processors}};
  }
  if (const auto& late = cause.late) {
    nlohmann::json phase;
    for (const auto& entry : kPhaseNames) {
      if (late->phase == entry.phase) phase = std::string(entry.key);
    }
    result["late_ranks"] = {{"ranks", late->ranks},
                            {"node", late->node},
                            {"seconds", late->seconds},
                            {"phase", phase},
                            {"phase_seconds", late->phase_seconds}};
  }
  return result;
}

}  // namespace ddp::report
