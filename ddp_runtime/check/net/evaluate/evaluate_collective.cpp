// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/findings/threshold.h"

namespace ddp::check {
namespace {

constexpr double kSlowCollective = 5;
constexpr double kLateCollective = 10;
constexpr int kThreadsOfATask = 2;

// The name of a check, such as mpi.all_reduce_data.
std::string check_of(const CollectiveMeasured& measured, const char* what) {
  return fmt::format("{}.{}{}", name_of(measured.over), name_of(measured.collective), what);
}

Finding wrong_data(const CollectiveMeasured& measured, const CollectiveResult& result) {
  const Mismatch& mismatch = result.mismatch;
  return {.check = check_of(measured, "_data"),
          .severity = Severity::critical,
          .value = static_cast<double>(mismatch.count),
          .unit = "wrong elements",
          .expected = "none",
          .rule = "small integers, and their sums in any order, are exact",
          .evidence =
              fmt::format("element {} is {:g} instead of {:g}", mismatch.first,
                          static_cast<double>(mismatch.got), static_cast<double>(mismatch.wanted)),
          .action = "do not use the node; check its memory and network card"};
}

// With two ranks, either end may have corrupted the data.
void blame_both_ends(const CollectiveMeasured& measured, Finding& finding) {
  for (const auto& [rank, node] : measured.nodes) {
    if (node != finding.node) finding.peer = node;
  }
}

}  // namespace

std::vector<Finding> evaluate_collective_data(const CollectiveMeasured& measured) {
  std::vector<Finding> wrong;
  for (const auto& [rank, result] : measured.results) {
    if (result.mismatch.count == 0) continue;
    wrong.push_back(wrong_data(measured, result));
    wrong.back().node = measured.nodes.at(rank);
  }
  if (wrong.size() == 1 && measured.ranks == 2) blame_both_ends(measured, wrong.front());
  if (wrong.size() < 2 || wrong.size() < measured.results.size()) return wrong;
  Finding everywhere = wrong.front();
  everywhere.node.clear();
  everywhere.evidence += "; on all ranks, so the faulty node is not known";
  return {everywhere};
}

std::optional<BusBandwidth> bus_bandwidth(const CollectiveMeasured& measured) {
  if (measured.results.empty() || measured.ranks < 2) return std::nullopt;
  std::vector<double> slowest;
  for (const auto& [rank, result] : measured.results) {
    slowest.resize(std::max(slowest.size(), result.seconds.size()), 0);
    for (std::size_t i = 0; i < result.seconds.size(); ++i) {
      slowest[i] = std::max(slowest[i], result.seconds[i]);
    }
  }
  if (slowest.empty() || median(slowest) <= 0) return std::nullopt;
  BusBandwidth result;
  result.seconds = median(slowest);
  result.best_seconds = *std::min_element(slowest.begin(), slowest.end());
  result.algorithm_per_second =
      static_cast<double>(measured.elements * sizeof(float)) / result.seconds;
  result.factor = bus_factor(measured.collective, measured.ranks);
  result.bus_per_second = result.algorithm_per_second * result.factor;
  return result;
}

PairBasis pair_basis_of(std::span<const PairResult> results) {
  PairBasis basis;
  std::vector<double> latencies;
  for (const auto& result : results) {
    if (!result.measured()) continue;
    const double slower = std::min(result.a_to_b, result.b_to_a);
    if (basis.slowest_per_second <= 0 || slower < basis.slowest_per_second) {
      basis.slowest_per_second = slower;
    }
    if (result.latency_seconds > 0) latencies.push_back(result.latency_seconds);
  }
  if (!latencies.empty()) basis.latency_seconds = median(latencies);
  return basis;
}

bool processors_shared(const std::map<int, Hello>& present) {
  std::map<std::string, int> tasks;
  for (const auto& [rank, hello] : present) ++tasks[hello.host];
  return std::any_of(present.begin(), present.end(), [&tasks](const auto& entry) {
    const Hello& hello = entry.second;
    return hello.processors <= 0 || kThreadsOfATask * tasks.at(hello.host) > hello.processors;
  });
}

std::optional<double> predicted_seconds(Collective collective, int ranks, double bytes,
                                        const PairBasis& pairs) {
  if (ranks < 2 || pairs.slowest_per_second <= 0 || pairs.latency_seconds <= 0) return std::nullopt;
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  const double ring =
      passes * (ranks - 1) * (pairs.latency_seconds + bytes / ranks / pairs.slowest_per_second);
  const double tree = passes * std::ceil(std::log2(ranks)) *
                      (pairs.latency_seconds + bytes / pairs.slowest_per_second);
  return std::min(ring, tree);
}

namespace {

double bytes_of(const CollectiveMeasured& measured) {
  return static_cast<double>(measured.elements * sizeof(float));
}

// Compares the time with the prediction from the pairs. If no prediction is possible, the finding
// stays OK and contains the reason.
void compare_with_pairs(const CollectiveMeasured& measured, const PairBasis& pairs,
                        const BusBandwidth& bandwidth, double times, Finding& finding) {
  const auto predicted =
      predicted_seconds(measured.collective, measured.ranks, bytes_of(measured), pairs);
  finding.rule = "verified; not compared";
  if (pairs.processors_shared) {
    finding.rule += ": tasks share cores and wait for their turn";
  } else if (pairs.noisy) {
    finding.rule += ": the pairs vary too much for a prediction";
  }
  if (!predicted || pairs.processors_shared || pairs.noisy) return;
  finding.rule = fmt::format(
      "verified; the fastest time is at most {:g} times the prediction from the slowest pair and "
      "the median latency",
      times);
  finding.evidence +=
      fmt::format("{}the fastest took {:.3g} s, but the pairs predict {:.3g} s",
                  finding.evidence.empty() ? "" : "; ", bandwidth.best_seconds, *predicted);
  if (bandwidth.best_seconds <= times * *predicted) return;
  finding.severity = Severity::warning;
  finding.action = "the pairs are faster: check placement and shared uplinks";
  if (measured.over == TransportKind::mpi) {
    finding.action += ", and the MPI library's choice of algorithm and transport";
  }
}

}  // namespace

Finding evaluate_collective_speed(const CollectiveMeasured& measured, std::optional<double> fewest,
                                  const PairBasis& pairs) {
  Finding finding{
      .check = check_of(measured, ""),
      .severity = Severity::ok,
      .unit = "GB/s",
      .rule = fewest ? "at least the requested bus bandwidth" : "verified; not compared"};
  const auto bandwidth = bus_bandwidth(measured);
  if (!bandwidth) {
    finding.severity = Severity::unknown;
    finding.evidence = fmt::format("no {} completed", title_of(measured.collective));
    finding.action = "see the other findings";
    return finding;
  }
  finding.value = bandwidth->bus_per_second / kGB;
  finding.evidence = fmt::format("{} ranks, {:.3g} MB in {:.3g} s, factor {} = {:.3g}",
                                 measured.ranks, bytes_of(measured) / 1e6, bandwidth->seconds,
                                 bus_factor_text(measured.collective), bandwidth->factor);
  if (!fewest) {
    compare_with_pairs(measured, pairs, *bandwidth, kSlowCollective, finding);
    return finding;
  }
  finding.expected = fmt::format("at least {:.3g} GB/s", *fewest / kGB);
  if (bandwidth->bus_per_second < *fewest) {
    finding.severity = Severity::critical;
    finding.action = "if the pairs are fast, check placement and shared uplinks";
    if (measured.over == TransportKind::mpi) finding.action += ", and the MPI library's transport";
  }
  return finding;
}

std::vector<Finding> evaluate_collective_latency(const CollectiveMeasured& measured,
                                                 const PairBasis& pairs) {
  const auto bandwidth = bus_bandwidth(measured);
  if (!bandwidth) return {};
  Finding finding{.check = check_of(measured, "_latency"),
                  .severity = Severity::ok,
                  .value = bandwidth->seconds * 1e6,
                  .unit = "us"};
  if (measured.over == TransportKind::mpi) {
    compare_with_pairs(measured, pairs, *bandwidth, kLateCollective, finding);
  } else {
    finding.rule = "verified; not compared: pairs over TCP have no communication threads to wake";
  }
  return {finding};
}

}  // namespace ddp::check
