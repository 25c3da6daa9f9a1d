// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <iterator>
#include <utility>

#include "ddp_runtime/check/node/gpu/gpu_judgment.h"

namespace ddp::check {
namespace {

struct Recovery {
  std::uint64_t number;
  Severity severity;
  const char* words;
};
// The actions that the driver requests. A GPU that must be drained first still computes correctly.
constexpr std::array<Recovery, 7> kRecoveries{
    {{1, Severity::critical, "the driver requests a reset of the GPU"},
     {2, Severity::critical, "the driver requests a restart of the node"},
     {3, Severity::warning, "the driver requests that traffic to other GPUs ends"},
     {4, Severity::warning, "the driver requests a reset of the GPU after its jobs have ended"},
     {5, Severity::warning, "the driver requests a recovery of the IMEX domain"},
     {6, Severity::critical, "the driver requests a reset of the GPU's bus"},
     {7, Severity::critical, "the driver requests a restart of the system"}}};

Finding evaluate_reset(const GpuFacts& gpu) {
  Finding finding = finding_about(gpu, "gpu.reset", "the GPU does not need a reset");
  finding.value = "not needed";
  if (!gpu.needs_reset.empty()) {
    finding.severity = Severity::critical;
    finding.value = "needed";
    finding.evidence = gpu.needs_reset;
  }
  for (const auto& [number, severity, words] : kRecoveries) {
    if (gpu.recovery.value != number || severity < finding.severity) continue;
    finding.severity = severity;
    finding.value = "needed";
    finding.evidence = words;
  }
  if (finding.severity == Severity::ok) return finding;
  finding.expected = "not needed";
  finding.action = "drain the node, then reset the GPU or restart the node";
  return finding;
}

// A counter of uncorrected memory errors, and what a count above 0 means.
struct ErrorCounter {
  GpuReading GpuFacts::*reading;
  const char* check;
  const char* rule;
  Severity severity;
  const char* evidence;
  const char* action;
};
// Rows with such errors are remapped, so errors of the past do not make results wrong.
constexpr std::array<ErrorCounter, 2> kUncorrected{
    {{&GpuFacts::uncorrected, "gpu.ecc", "no uncorrectable memory errors", Severity::critical,
      "uncorrected errors since the driver was loaded",
      "drain the node and reset the GPU; if the errors come back, replace it"},
     {&GpuFacts::uncorrected_ever, "gpu.ecc_lifetime",
      "no uncorrectable memory errors in the GPU's life", Severity::warning,
      "uncorrected errors in the GPU's life", "replace the GPU if the number grows"}}};

Finding count_finding(const GpuFacts& gpu, const char* check, const char* rule,
                      std::uint64_t count) {
  Finding finding = finding_about(gpu, check, rule);
  finding.value = static_cast<double>(count);
  finding.unit = "errors";
  return finding;
}

std::vector<Finding> evaluate_uncorrected(const GpuFacts& gpu, const ErrorCounter& counter) {
  const GpuReading& count = gpu.*counter.reading;
  if (!count.value) return unknown_reading(gpu, counter.check, count);
  Finding finding = count_finding(gpu, counter.check, counter.rule, *count.value);
  if (*count.value == 0) return {finding};
  finding.severity = counter.severity;
  finding.expected = "none";
  finding.evidence = counter.evidence;
  finding.action = counter.action;
  return {finding};
}

// Corrected errors are only information.
std::vector<Finding> report_corrected(const GpuFacts& gpu) {
  if (!gpu.corrected.value) return {};
  return {count_finding(gpu, "gpu.ecc_corrected", "corrected errors are not a fault",
                        *gpu.corrected.value)};
}

std::vector<Finding> evaluate_rows(const GpuFacts& gpu) {
  for (const auto* reading : {&gpu.rows_failed, &gpu.rows_pending, &gpu.pages_pending}) {
    auto findings = unknown_reading(gpu, "gpu.rows", *reading);
    if (!findings.empty()) return findings;
  }
  if (!gpu.rows_failed.value && !gpu.pages_pending.value) return {};
  Finding finding = finding_about(gpu, "gpu.rows", "no bad memory row is waiting to be remapped");
  finding.value = "none pending";
  if (gpu.rows_failed.value.value_or(0) > 0) {
    finding.severity = Severity::critical;
    finding.value = "no spare row left";
    finding.evidence = "remapping a bad memory row failed";
    finding.action = "replace the GPU";
  } else if (gpu.rows_pending.value.value_or(0) > 0 || gpu.pages_pending.value.value_or(0) > 0) {
    finding.severity = Severity::warning;
    finding.value = "bad memory in use";
    finding.evidence = "it will be remapped at the next reset";
    finding.action = "reset the GPU when it is idle";
  }
  return {finding};
}

}  // namespace

std::vector<Finding> evaluate_gpu_memory_errors(const GpuFacts& gpu) {
  std::vector<Finding> findings{evaluate_reset(gpu)};
  const auto add = [&findings](std::vector<Finding> more) {
    std::move(more.begin(), more.end(), std::back_inserter(findings));
  };
  for (const auto& counter : kUncorrected) add(evaluate_uncorrected(gpu, counter));
  add(report_corrected(gpu));
  add(evaluate_rows(gpu));
  return findings;
}

}  // namespace ddp::check
