// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "ddp_runtime/check/node/gpu/gpu_judgment.h"

namespace ddp::check {
namespace {

struct Reason {
  std::uint64_t bit;
  Severity severity;
  const char* words;
};
// The throttle reasons that indicate a fault. Idle clocks and an intentional power limit are not
// faults.
constexpr std::array<Reason, 4> kReasons{
    {{0x08, Severity::critical, "hardware slowdown"},
     {0x40, Severity::critical, "too hot, slowed by the hardware"},
     {0x80, Severity::critical, "power brake: the power supply requested less load"},
     {0x20, Severity::warning, "too hot, slowed by the driver"}}};

// Reasons for low clocks that are intended: settings of the clocks, the power limit, GPUs that wait
// for the slowest one.
constexpr std::uint64_t kIntended = 0x02 | 0x04 | 0x10 | 0x100;

// Clocks vary with temperature and power by some 20 %.
constexpr double kLowClock = 0.5;

std::uint64_t fault_bits() {
  std::uint64_t bits = 0;
  for (const auto& reason : kReasons) bits |= reason.bit;
  return bits;
}

}  // namespace

bool is_throttled_by_a_fault(std::uint64_t reasons) {
  return (reasons & fault_bits()) != 0;
}

std::vector<Finding> evaluate_throttle(const GpuFacts& gpu) {
  if (!gpu.throttle.value) return unknown_reading(gpu, "gpu.throttle", gpu.throttle);
  Finding finding =
      finding_about(gpu, "gpu.throttle", "the clocks are not throttled by heat or power");
  std::string names;
  const std::uint64_t lasting = gpu.throttle_lasting.value.value_or(0);
  for (const auto& [bit, severity, words] : kReasons) {
    if ((*gpu.throttle.value & bit) == 0) continue;
    names += (names.empty() ? "" : ", ") + std::string(words);
    const Severity judged = (lasting & bit) != 0 ? severity : Severity::warning;
    if (judged > finding.severity) finding.severity = judged;
  }
  finding.value = names.empty() ? "not throttled" : names;
  if (names.empty()) return {finding};
  if ((*gpu.throttle.value & fault_bits() & ~lasting) != 0)
    finding.evidence = "not in all readings";
  finding.action = "check cooling, fans and power supply of the node";
  return {finding};
}

std::vector<Finding> evaluate_clock(const GpuFacts& gpu) {
  for (const auto* reading : {&gpu.sm_clock, &gpu.sm_clock_max}) {
    if (!reading->value) return unknown_reading(gpu, "gpu.clock", *reading);
  }
  Finding finding =
      finding_about(gpu, "gpu.clock", "a GPU under load runs at half of its maximum clock or more");
  const auto clock = static_cast<double>(*gpu.sm_clock.value);
  const auto most = static_cast<double>(*gpu.sm_clock_max.value);
  finding.value = clock;
  finding.unit = "MHz";
  if (clock >= kLowClock * most) return {finding};
  const std::uint64_t reasons = gpu.throttle.value.value_or(0);
  if (!is_under_load(gpu)) {
    finding.evidence = "idle, so its clock is not judged";
  } else if ((reasons & kIntended) != 0) {
    finding.evidence = "lowered by a setting or the power limit";
  } else if (is_throttled_by_a_fault(reasons)) {
    finding.evidence = "see gpu.throttle";
  } else {
    finding.severity = Severity::warning;
    finding.expected = std::to_string(*gpu.sm_clock_max.value) + " MHz at most";
    finding.evidence = "below half of the maximum under load, and the driver gives no reason";
    finding.action = "check nvidia-smi -q -d CLOCK,PERFORMANCE; reset the GPU";
  }
  return {finding};
}

}  // namespace ddp::check
