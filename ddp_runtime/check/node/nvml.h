// SPDX-License-Identifier: Apache-2.0
// Queries NVIDIA's management library, loaded at run time if installed: no build needs it, and a
// node without GPUs does not have it.
#pragma once

#include <string>

#include "ddp_runtime/check/node/gpu_facts.h"

namespace ddp::check {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// Loads `library`, a name or a path, and reads all GPUs, at most 64. May hang in the driver: call
// it where that does no harm, as in Subprocess.
NvmlFacts read_nvml(const std::string& library);

}  // namespace ddp::check
