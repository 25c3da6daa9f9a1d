// GPUs: as many as the step asked for, none with a fault that its driver knows of, and none that
// somebody else computes on.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/environment.h"
#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/node/gpu_facts.h"

namespace ddp::check {

struct GpuExpectations {
  std::optional<int> wanted;  // by the step; a step without GPUs says nothing
  int nvidia_in_kernel = 0;   // GPUs that the kernel gave to NVIDIA's driver
  int others_in_kernel = 0;   // to other vendors' drivers
  bool all_visible = false;   // no job's limits hide GPUs from this process
  std::function<bool(int pid)> is_own = [](int) { return false; };  // a process of this job
};

// What SLURM gave the step here; of a task that is bound to some of them, those. Nothing without.
std::optional<int> gpus_wanted(const Environment& environment);

// No findings for a node without GPUs, of which the step wants none.
std::vector<Finding> evaluate_gpus(const NvmlFacts& facts, const GpuExpectations& expected);

// The GPUs that the kernel's log names as having failed by themselves; not those whose program was
// at fault. `log` is what /dev/kmsg gives; a line is "NVRM: Xid (PCI:0000:1b:00): 79, ..".
std::vector<Finding> evaluate_xids(std::string_view log);

// At most 4 MiB of it, without waiting for more; nothing if it may not be read.
std::optional<std::string> read_kernel_log(const std::string& file);

// Whether the process belongs to the SLURM job of this one; false where that cannot be seen.
bool is_of_job(int pid, const std::string& job_id);

}  // namespace ddp::check
