// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/rail_speeds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/text.h"
#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/findings/threshold.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMinRails = 3;
constexpr double kSlowRail = 0.8;

}  // namespace

std::string rail_speeds_text(const std::vector<RailSpeed>& speeds) {
  std::vector<double> medians;
  std::vector<std::string> names;
  const RailSpeed* slowest = nullptr;
  for (const auto& one : speeds) {
    if (one.measured.exchanges == 0) continue;
    medians.push_back(one.measured.median_per_second);
    names.push_back(one.rail);
    if (slowest == nullptr ||
        one.measured.lowest_per_second < slowest->measured.lowest_per_second) {
      slowest = &one;
    }
  }
  if (slowest == nullptr) return {};
  const bool several = names.size() > 1;
  return fmt::format("; RDMA {:.3g} GB/s over {}{} (lowest {:.3g}{})", median(medians) / kGB,
                     several ? "each of " : "", fmt::join(names, " "),
                     slowest->measured.lowest_per_second / kGB,
                     several ? " over " + slowest->rail : "");
}

std::vector<Finding> evaluate_rail_speeds(const std::vector<RailSpeed>& speeds) {
  std::map<std::optional<double>, std::vector<double>> by_rate;
  for (const auto& one : speeds) {
    if (one.measured.exchanges > 0) by_rate[one.rate].push_back(one.measured.median_per_second);
  }
  std::vector<Finding> findings;
  for (const auto& one : speeds) {
    const auto& alike = by_rate[one.rate];
    if (one.measured.exchanges == 0 || alike.size() < kMinRails) continue;
    const double usual = median(alike);
    const double speed = one.measured.median_per_second;
    if (speed >= kSlowRail * usual) continue;
    findings.push_back(
        {.check = "verbs.rail",
         .severity = Severity::warning,
         .device = one.rail,
         .value = speed / kGB,
         .unit = "GB/s",
         .expected = fmt::format("at least {:.3g} GB/s", kSlowRail * usual / kGB),
         .rule = "the ports of a node that have the same rate are equally fast",
         .evidence = fmt::format("the median of all nodes; that of {} is {:.3g} GB/s",
                                 counted(alike.size(), "port"), usual / kGB),
         .action = "check the switches of this rail, and the PCIe slots of its ports"});
  }
  return findings;
}

}  // namespace ddp::check
