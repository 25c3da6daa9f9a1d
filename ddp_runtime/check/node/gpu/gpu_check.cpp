// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/gpu/gpu_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/visible_devices.h"
#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/node/gpu/gpu_judgment.h"

namespace ddp::check {
namespace {

// A larger fraction of used memory is reported if no visible process uses the GPU. The driver
// itself uses some memory.
constexpr double kMaxOrphans = 0.05;

std::vector<Finding> evaluate_memory_use(const GpuFacts& gpu, const GpuExpectations& expected) {
  if (!expected.wanted) return {};  // jobs may be using the GPUs of this node
  if (is_divided(gpu)) return {};   // or other MIG devices of this GPU
  for (const auto* reading : {&gpu.processes_known, &gpu.memory_used}) {
    auto findings = unknown_reading(gpu, "gpu.memory", *reading);
    if (!findings.empty()) return findings;
  }
  if (!gpu.memory_used.value || !gpu.memory_total.value) return {};
  Finding finding = finding_about(gpu, "gpu.memory", "no other job's process holds GPU memory");
  const double used = static_cast<double>(*gpu.memory_used.value);
  finding.value = used / static_cast<double>(kMiB);
  finding.unit = "MiB";
  const auto stranger =
      std::find_if_not(gpu.processes.begin(), gpu.processes.end(), expected.is_own);
  const bool much = used > kMaxOrphans * static_cast<double>(*gpu.memory_total.value);
  if (stranger != gpu.processes.end()) {
    finding.evidence = fmt::format("process {} does not belong to this job", *stranger);
  } else if (gpu.processes.empty() && much) {
    finding.evidence = "not held by any visible process";
  } else {
    return {finding};
  }
  finding.severity = Severity::warning;
  finding.expected = "none in use";
  finding.action = "kill processes left over from an earlier job, or request the GPU exclusively";
  return {finding};
}

void add(std::vector<Finding>& findings, std::vector<Finding> more) {
  std::move(more.begin(), more.end(), std::back_inserter(findings));
}

std::vector<Finding> evaluate_gpu(const GpuFacts& gpu, const GpuExpectations& expected) {
  Finding reached = finding_about(gpu, "gpu.reached", "every GPU answers");
  reached.value = gpu.name;
  if (!gpu.trouble.empty()) {
    reached.severity = Severity::critical;
    reached.value = "no answer";
    reached.evidence = gpu.trouble;
    reached.action = "reset the GPU or restart the node";
    return {reached};
  }
  std::vector<Finding> findings{reached};
  add(findings, evaluate_gpu_memory_errors(gpu));
  add(findings, evaluate_throttle(gpu));
  add(findings, evaluate_clock(gpu));
  add(findings, evaluate_pcie(gpu));
  add(findings, evaluate_memory_use(gpu, expected));
  return findings;
}

// What programs use and SLURM counts: GPUs, and the MIG devices of GPUs that are divided. Empty if
// the number of MIG devices is not known.
std::optional<int> count_of_devices(const NvmlFacts& facts, const GpuExpectations& expected) {
  const bool answers = facts.library_found && facts.trouble.empty();
  const int boards = answers ? static_cast<int>(facts.gpus.size()) : expected.nvidia_in_kernel;
  const bool any_divided = std::any_of(facts.gpus.begin(), facts.gpus.end(), is_divided);
  if (boards > 0 && expected.mig_listed && !any_divided) return std::nullopt;
  int count = answers ? 0 : boards;
  for (const auto& gpu : facts.gpus) {
    if (is_divided(gpu) && !gpu.mig_devices.value) return std::nullopt;
    count += is_divided(gpu) ? static_cast<int>(*gpu.mig_devices.value) : 1;
  }
  return count;
}

Finding count_finding(const NvmlFacts& facts, const GpuExpectations& expected) {
  const int boards = facts.library_found && facts.trouble.empty()
                         ? static_cast<int>(facts.gpus.size())
                         : expected.nvidia_in_kernel;
  const int others = expected.others_in_kernel;
  Finding finding{.check = "gpu.present",
                  .severity = Severity::ok,
                  .value = static_cast<double>(boards + others),
                  .unit = "GPUs",
                  .rule = "all GPUs that the step requested and the kernel knows are present"};
  const int known = expected.all_visible ? expected.nvidia_in_kernel : 0;
  const int wanted = expected.wanted.value_or(0);
  const auto devices = count_of_devices(facts, expected);
  finding.expected = fmt::format("at least {}", std::max(wanted, known + others));
  if (boards < known) {
    finding.evidence = fmt::format("the kernel assigned {} to the driver", known + others);
  } else if (devices && *devices + others < wanted) {
    finding.value = static_cast<double>(*devices + others);
    finding.evidence = "according to SLURM_GPUS_ON_NODE; " +
                       (facts.trouble.empty() ? "no other GPU answers" : facts.trouble);
  } else {
    if (!devices) finding.expected.clear();
    return finding;
  }
  finding.severity = Severity::critical;
  finding.action = "check nvidia-smi and the kernel log on this node";
  return finding;
}

Finding cannot_ask(const std::string& why) {
  return {.check = "gpu.health",
          .severity = Severity::unknown,
          .rule = "the GPUs' counters can be read",
          .evidence = why,
          .action =
              "install the driver's management library (libnvidia-ml.so.1), or check this node by "
              "hand"};
}

}  // namespace

std::optional<int> gpus_wanted(const Environment& environment) {
  const auto of_node = integer(environment, "SLURM_GPUS_ON_NODE");
  if (!of_node || *of_node <= 0) return std::nullopt;
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  if (!visible || visible->empty()) return of_node;
  const auto listed = static_cast<int>(visible_devices(*visible).size());
  return listed > 0 ? std::optional(std::min(*of_node, listed)) : std::nullopt;
}

std::vector<Finding> evaluate_gpus(const NvmlFacts& facts, const GpuExpectations& expected) {
  const bool answers = facts.library_found && facts.trouble.empty();
  const int in_kernel = expected.nvidia_in_kernel + expected.others_in_kernel;
  if (!expected.wanted && expected.nvidia_in_kernel == 0 && (!answers || facts.gpus.empty())) {
    return {};
  }
  std::vector<Finding> findings{count_finding(facts, expected)};
  const bool nvidia_concerned = expected.nvidia_in_kernel > 0 || in_kernel == 0;
  if (!answers && nvidia_concerned) findings.push_back(cannot_ask(facts.trouble));
  if (expected.wanted && expected.others_in_kernel > 0) {
    findings.push_back(cannot_ask("GPUs of vendors other than NVIDIA are only counted"));
  }
  for (const auto& gpu : facts.gpus) add(findings, evaluate_gpu(gpu, expected));
  add(findings, evaluate_links(facts));
  add(findings, evaluate_peers(facts));
  return findings;
}

std::vector<std::string> gpus_of_others(const NvmlFacts& facts, const GpuExpectations& expected) {
  std::vector<std::string> used;
  for (const auto& gpu : facts.gpus) {
    if (!std::all_of(gpu.processes.begin(), gpu.processes.end(), expected.is_own)) {
      used.push_back(gpu.bus_address);
    }
  }
  return used;
}

bool is_of_job(int pid, const std::string& job_id) {
  if (job_id.empty()) return false;
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  const std::string wanted = "SLURM_JOB_ID=" + job_id;
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry == wanted) return true;
  }
  return false;
}

}  // namespace ddp::check
