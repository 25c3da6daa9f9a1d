#include "ddp_runtime/check/net/judge/judge_collective.h"

#include <fmt/format.h>

#include <algorithm>

#include "ddp_runtime/check/byte_units.h"
#include "ddp_runtime/check/net/locate/threshold.h"

namespace ddp::check {
namespace {

Finding wrong_data(Collective collective, const CollectiveResult& result) {
  const Mismatch& mismatch = result.mismatch;
  return {.check = fmt::format("mpi.{}_data", name_of(collective)),
          .severity = Severity::critical,
          .value = static_cast<double>(mismatch.count),
          .unit = "wrong elements",
          .expected = "none",
          .rule = "small integers, and their sums in any order, are exact",
          .evidence =
              fmt::format("element {} is {:g} instead of {:g}", mismatch.first,
                          static_cast<double>(mismatch.got), static_cast<double>(mismatch.wanted)),
          .action = "do not use it: check memory and network card"};
}

// Between two ranks the data may have changed at either end.
void blame_both_ends(const CollectiveMeasured& measured, Finding& finding) {
  for (const auto& [rank, node] : measured.nodes) {
    if (node != finding.node) finding.peer = node;
  }
}

}  // namespace

std::vector<Finding> judge_collective_data(const CollectiveMeasured& measured) {
  std::vector<Finding> wrong;
  for (const auto& [rank, result] : measured.results) {
    if (result.mismatch.count == 0) continue;
    wrong.push_back(wrong_data(measured.collective, result));
    wrong.back().node = measured.nodes.at(rank);
  }
  if (wrong.size() == 1 && measured.ranks == 2) blame_both_ends(measured, wrong.front());
  if (wrong.size() < 2 || wrong.size() < measured.results.size()) return wrong;
  Finding everywhere = wrong.front();
  everywhere.node.clear();
  everywhere.evidence += "; on all ranks, so the node that spoils it is not known";
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
  result.algorithm_per_second =
      static_cast<double>(measured.elements * sizeof(float)) / result.seconds;
  result.factor = bus_factor(measured.collective, measured.ranks);
  result.bus_per_second = result.algorithm_per_second * result.factor;
  return result;
}

Finding judge_collective_speed(const CollectiveMeasured& measured, std::optional<double> fewest) {
  Finding finding{
      .check = "mpi." + name_of(measured.collective),
      .severity = Severity::ok,
      .unit = "GB/s",
      .rule = fewest ? "at least the bus bandwidth asked for" : "verified; not compared"};
  const auto bandwidth = bus_bandwidth(measured);
  if (!bandwidth) {
    finding.severity = Severity::unknown;
    finding.evidence = fmt::format("no {} was completed", title_of(measured.collective));
    finding.action = "see the other findings";
    return finding;
  }
  finding.value = bandwidth->bus_per_second / kGB;
  finding.evidence =
      fmt::format("{} ranks, {:.3g} MB in {:.3g} s, factor {} = {:.3g}", measured.ranks,
                  static_cast<double>(measured.elements * sizeof(float)) / 1e6, bandwidth->seconds,
                  bus_factor_text(measured.collective), bandwidth->factor);
  if (fewest) finding.expected = fmt::format("at least {:.3g} GB/s", *fewest / kGB);
  if (fewest && bandwidth->bus_per_second < *fewest) {
    finding.severity = Severity::critical;
    finding.action = "if the pairs are fast, look at placement and at the MPI library's transport";
  }
  return finding;
}

}  // namespace ddp::check
