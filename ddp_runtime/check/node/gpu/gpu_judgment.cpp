// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/gpu/gpu_judgment.h"

namespace ddp::check {

Finding finding_about(const GpuFacts& gpu, const char* check, const char* rule) {
  return {.check = check, .severity = Severity::ok, .device = gpu.bus_address, .rule = rule};
}

std::vector<Finding> unknown_reading(const GpuFacts& gpu, const char* check,
                                     const GpuReading& reading) {
  if (reading.trouble.empty()) return {};
  Finding finding = finding_about(gpu, check, "the driver's readings are available");
  finding.severity = Severity::unknown;
  finding.evidence = reading.trouble;
  finding.action = "run the check with the required permissions, and check nvidia-smi on this node";
  return {finding};
}

bool is_under_load(const GpuFacts& gpu) {
  constexpr std::uint64_t kIdle = 1;
  return gpu.utilization.value.value_or(0) > 0 && (gpu.throttle.value.value_or(kIdle) & kIdle) == 0;
}

}  // namespace ddp::check
