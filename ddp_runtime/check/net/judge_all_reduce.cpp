#include "ddp_runtime/check/net/judge_all_reduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "ddp_runtime/check/byte_units.h"
#include "ddp_runtime/check/net/threshold.h"

namespace ddp::check {
namespace {

Finding wrong_data(const AllReduceResult& result) {
  const Mismatch& mismatch = result.mismatch;
  return {.check = "mpi.all_reduce_data",
          .severity = Severity::critical,
          .value = static_cast<double>(mismatch.count),
          .unit = "wrong elements",
          .expected = "none",
          .rule = "sums of small integers are exact in any order",
          .evidence =
              fmt::format("element {} is {:g} instead of {:g}", mismatch.first,
                          static_cast<double>(mismatch.got), static_cast<double>(mismatch.wanted)),
          .action = "do not use it: check memory and network card"};
}

// Between two ranks the data may have changed at either end.
void blame_both_ends(const AllReduceMeasured& measured, Finding& finding) {
  for (const auto& [rank, node] : measured.nodes) {
    if (node != finding.node) finding.peer = node;
  }
}

std::vector<Finding> judge_sums(const AllReduceMeasured& measured) {
  std::vector<Finding> wrong;
  for (const auto& [rank, result] : measured.results) {
    if (result.mismatch.count == 0) continue;
    wrong.push_back(wrong_data(result));
    wrong.back().node = measured.nodes.at(rank);
  }
  if (wrong.size() == 1 && measured.ranks == 2) blame_both_ends(measured, wrong.front());
  if (wrong.size() < 2 || wrong.size() < measured.results.size()) return wrong;
  Finding everywhere = wrong.front();
  everywhere.node.clear();
  everywhere.evidence += "; on all ranks, so the node that spoils the sum is not known";
  return {everywhere};
}

Finding judge_speed(const AllReduceMeasured& measured, std::optional<double> fewest) {
  Finding finding{
      .check = "mpi.all_reduce",
      .severity = Severity::ok,
      .unit = "GB/s",
      .rule = fewest ? "at least the bus bandwidth asked for" : "verified; not compared"};
  const auto bandwidth = bus_bandwidth(measured);
  if (!bandwidth) {
    finding.severity = Severity::unknown;
    finding.evidence = "no all-reduce was completed";
    finding.action = "see the other findings";
    return finding;
  }
  finding.value = bandwidth->bus_per_second / kGB;
  finding.evidence = fmt::format("{} ranks, {} MiB, factor 2(n-1)/n = {:.3g}", measured.ranks,
                                 measured.elements * sizeof(float) >> 20U, bandwidth->factor);
  if (fewest) finding.expected = fmt::format("at least {:.3g} GB/s", *fewest / kGB);
  if (fewest && bandwidth->bus_per_second < *fewest) {
    finding.severity = Severity::critical;
    finding.action = "if the pairs are fast, look at placement and at the MPI library's transport";
  }
  return finding;
}

}  // namespace

std::optional<BusBandwidth> bus_bandwidth(const AllReduceMeasured& measured) {
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
  result.algorithm_per_second =
      static_cast<double>(measured.elements * sizeof(float)) / result.seconds;
  result.factor = 2.0 * (measured.ranks - 1) / measured.ranks;
  result.bus_per_second = result.algorithm_per_second * result.factor;
  return result;
}

std::vector<Finding> judge_all_reduce(const AllReduceMeasured& measured,
                                      std::optional<double> fewest_per_second) {
  std::vector<Finding> findings = judge_sums(measured);
  findings.push_back(judge_speed(measured, fewest_per_second));
  return findings;
}

}  // namespace ddp::check
