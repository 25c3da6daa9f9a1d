// SPDX-License-Identifier: Apache-2.0
// Checks the GPUs: the node has as many as the step requested, the driver reports no faults, and no
// other job uses them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/findings/environment.h"
#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/node/gpu/gpu_facts.h"

namespace ddp::check {

struct GpuExpectations {
  // Number requested by the step, of GPUs or MIG devices; empty for a step without GPUs.
  std::optional<int> wanted;
  int nvidia_in_kernel = 0;   // GPUs bound to NVIDIA's kernel driver
  int others_in_kernel = 0;   // GPUs bound to other vendors' drivers
  int without_driver = 0;     // NVIDIA's GPUs that its driver does not serve
  std::optional<int> listed;  // number in CUDA_VISIBLE_DEVICES; empty if it is not set
  bool mig_listed = false;    // MIG devices are among them
  bool all_visible = false;   // no GPUs are hidden from this process by a job's limits
  // Whether a process belongs to this job.
  std::function<bool(int pid)> is_own = [](int) { return false; };
};

// The number of GPUs that SLURM allocated to the step on this node, or to the task if it is bound
// to some of them. Returns nullopt if there are none.
std::optional<int> gpus_wanted(const Environment& environment);

// No findings for a node without GPUs if the step does not request any.
std::vector<Finding> evaluate_gpus(const NvmlFacts& facts, const GpuExpectations& expected);

// Sentences about the GPUs that are neither faults nor measurements: settings, and what hides GPUs
// from programs or from the check.
std::vector<std::string> gpu_notes(const NvmlFacts& facts, const GpuExpectations& expected);

// Bus addresses of the GPUs that processes of other jobs use.
std::vector<std::string> gpus_of_others(const NvmlFacts& facts, const GpuExpectations& expected);

// The GPUs that failed according to the kernel log, ignoring errors caused by programs. `log` is
// the content of /dev/kmsg, with lines such as "NVRM: Xid (PCI:0000:1b:00): 79, ..".
std::vector<Finding> evaluate_xids(std::string_view log);

// Reads at most 4 MiB without waiting for new messages. Returns nullopt if the log is not readable.
std::optional<std::string> read_kernel_log(const std::string& file);

// Whether the process belongs to the same SLURM job as this one; false if that cannot be
// determined.
bool is_of_job(int pid, const std::string& job_id);

}  // namespace ddp::check
