// Asks NVIDIA's management library, which is loaded if it is there: no build needs it, and a node
// without GPUs has none.
#pragma once

#include <string>

#include "ddp_runtime/check/node/gpu_facts.h"

namespace ddp::check {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// Loads `library`, a name or a path, and reads all GPUs, 64 at most. May hang with the driver: call
// it where that does no harm, as in Subprocess.
NvmlFacts read_nvml(const std::string& library);

}  // namespace ddp::check
