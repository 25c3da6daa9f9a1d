// SPDX-License-Identifier: Apache-2.0
// The CPUs that this process may run on, as reported by the kernel.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

// Returns nullopt if the kernel does not report the mask. Cores are distinguished by
// cpuN/topology/thread_siblings_list below `cpu_root`; if that is missing, every CPU counts as a
// core. Does not throw.
std::optional<CpuFacts> read_cpu_mask(
    const std::string& cpu_root = "/sys/devices/system/cpu") noexcept;

}  // namespace ddp::launch
