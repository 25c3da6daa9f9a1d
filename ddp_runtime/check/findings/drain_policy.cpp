// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/drain_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/errors.h"
#include "ddp_runtime/check/findings/operations.h"

namespace ddp::check {
namespace {

bool is_ours(const std::string& reason) {
  return reason.starts_with(kReasonPrefix);
}

std::ptrdiff_t count_drained(const std::vector<SlurmNode>& nodes) {
  return std::count_if(nodes.begin(), nodes.end(), is_drained);
}

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<SlurmNode> slurm_nodes_in(std::string_view text) {
  std::vector<SlurmNode> nodes;
  std::set<std::string> seen;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const auto first = line.find('|');
    const auto second = first == std::string_view::npos ? first : line.find('|', first + 1);
    if (second == std::string_view::npos || first == 0) continue;
    std::string name(line.substr(0, first));
    if (!seen.insert(name).second) continue;
    nodes.push_back({std::move(name), std::string(line.substr(first + 1, second - first - 1)),
                     std::string(line.substr(second + 1))});
  }
  return nodes;
}

bool is_drained(const SlurmNode& node) {
  return node.state.find("drain") != std::string::npos;
}

DrainLimit drain_limit_from(std::string_view text) {
  const bool percent = text.ends_with('%');
  const auto number = percent ? text.substr(0, text.size() - 1) : text;
  if (const auto part = percent ? whole_number<double>(number) : std::nullopt;
      part && *part > 0 && *part <= 100) {
    return {.part = *part / 100};
  }
  if (const auto nodes = percent ? std::nullopt : whole_number<int>(number); nodes && *nodes > 0) {
    return {.nodes = *nodes};
  }
  throw UsageError(fmt::format(
      "--max-drain '{}' is neither a number of nodes nor a percentage; use for example 20 or 10%",
      text));
}

int most_drained(const DrainLimit& limit, std::size_t all) {
  if (limit.nodes) return *limit.nodes;
  return std::max(1, static_cast<int>(std::floor(*limit.part * static_cast<double>(all) + 1e-9)));
}

bool may_drain(const std::vector<SlurmNode>& nodes, const std::string& node,
               const DrainLimit& limit) {
  const auto own = std::find_if(nodes.begin(), nodes.end(),
                                [&node](const SlurmNode& other) { return other.name == node; });
  if (own != nodes.end() && is_drained(*own)) return true;
  return count_drained(nodes) < most_drained(limit, nodes.size());
}

bool must_come_back(const std::vector<SlurmNode>& nodes, const std::string& node,
                    const DrainLimit& limit) {
  std::vector<std::string> ours;
  for (const auto& other : nodes) {
    if (is_drained(other) && is_ours(other.reason)) ours.push_back(other.name);
  }
  std::sort(ours.begin(), ours.end());
  const auto place = std::find(ours.begin(), ours.end(), node) - ours.begin();
  const auto of_others = count_drained(nodes) - static_cast<std::ptrdiff_t>(ours.size());
  return of_others + place >= most_drained(limit, nodes.size());
}

bool made_again_and_clean(const Verdict& verdict, const std::string& node,
                          const std::string& reason) {
  if (!is_ours(reason)) return false;
  bool made = false;
  for (const auto& finding : verdict.findings.all()) {
    // A node that still has a CRITICAL finding stays drained, even if the fault it was drained for
    // is gone.
    if (finding.severity == Severity::critical && finding.node == node) return false;
    if (finding.node != node || reason_of(finding) != reason) continue;
    if (finding.severity != Severity::ok && finding.severity != Severity::warning) return false;
    made = true;
  }
  return made;
}

CleanRuns clean_runs_in(std::string_view text) {
  const auto space = text.find(' ');
  const auto end = text.find('\n');
  if (space == std::string_view::npos) return {};
  const auto count = whole_number<int>(text.substr(0, space));
  if (!count || *count < 0) return {};
  return {*count,
          std::string(text.substr(space + 1, end == std::string_view::npos ? std::string_view::npos
                                                                           : end - space - 1))};
}

std::string text_of(const CleanRuns& runs) {
  return fmt::format("{} {}\n", runs.count, runs.reason);
}

CleanRuns counted_on(const CleanRuns& before, const std::string& reason, bool clean) {
  if (!clean) return {0, reason};
  return {before.reason == reason ? before.count + 1 : 1, reason};
}

}  // namespace ddp::check
