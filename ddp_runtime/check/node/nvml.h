// SPDX-License-Identifier: Apache-2.0
// Queries NVIDIA's management library (NVML). It is loaded at run time, because the build machine
// and nodes without GPUs do not have it.
#pragma once

#include <string>

#include "ddp_runtime/check/node/gpu_facts.h"

namespace ddp::check {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// Loads `library`, a name or a path, and reads at most 64 GPUs. May hang in the driver, so call it
// in a process that can be killed, such as Subprocess.
NvmlFacts read_nvml(const std::string& library);

}  // namespace ddp::check
