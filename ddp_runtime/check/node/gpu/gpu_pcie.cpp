// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "ddp_runtime/check/node/gpu/gpu_judgment.h"

namespace ddp::check {
namespace {

std::string link_text(std::uint64_t generation, std::uint64_t width) {
  return fmt::format("Gen {} x{}", generation, width);
}

// Each generation doubles the speed of a lane.
double speed_of_link(std::uint64_t generation, std::uint64_t width) {
  return std::ldexp(static_cast<double>(width), static_cast<int>(generation));
}

}  // namespace

std::vector<Finding> evaluate_pcie(const GpuFacts& gpu) {
  for (const auto* reading :
       {&gpu.pcie_generation, &gpu.pcie_generation_max, &gpu.pcie_width, &gpu.pcie_width_max}) {
    if (!reading->value) return unknown_reading(gpu, "gpu.pcie", *reading);
    if (*reading->value == 0 || *reading->value > 64) return {};  // not a PCIe link
  }
  Finding finding =
      finding_about(gpu, "gpu.pcie", "a GPU under load uses its PCIe link's full speed and width");
  const std::uint64_t generation = *gpu.pcie_generation.value;
  const std::uint64_t width = *gpu.pcie_width.value;
  const std::uint64_t best_generation = *gpu.pcie_generation_max.value;
  const std::uint64_t best_width = *gpu.pcie_width_max.value;
  finding.value = link_text(generation, width);
  if (generation >= best_generation && width >= best_width) return {finding};
  if (!gpu.read_under_load && !is_under_load(gpu)) {
    finding.evidence = "idle, so its link saves power and is not judged";
    return {finding};
  }
  finding.severity = Severity::warning;
  finding.expected = link_text(best_generation, best_width);
  finding.evidence = fmt::format(
      "trained down to {:.0f} % of the speed",
      100 * speed_of_link(generation, width) / speed_of_link(best_generation, best_width));
  finding.action = "reseat the GPU or its riser; check the slot and the BIOS settings";
  return {finding};
}

}  // namespace ddp::check
