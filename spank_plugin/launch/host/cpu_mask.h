#pragma once
// The CPUs that this process may run on, asked of the kernel.

#include <optional>
#include <string>

#include "spank_plugin/launch/facts.h"

namespace ddp::launch {

// Nothing if the kernel does not say. Cores are told apart by cpuN/topology/thread_siblings_list
// below `cpu_root`; where that is missing every CPU counts as a core. Throws nothing.
std::optional<CpuFacts> read_cpu_mask(
    const std::string& cpu_root = "/sys/devices/system/cpu") noexcept;

}  // namespace ddp::launch
