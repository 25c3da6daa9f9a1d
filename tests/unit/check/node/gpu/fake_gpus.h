// SPDX-License-Identifier: Apache-2.0
// Facts about GPUs from the fake of NVIDIA's library, and tables of its scenarios.
#pragma once

#include <cstdlib>
#include <string>

#include "ddp_runtime/check/node/gpu/nvml.h"

namespace ddp::check {

// Reads the facts from the fake library, and passes them on as text, as the check does.
inline NvmlFacts told(const std::string& scenario) {
  setenv("FAKE_NVML", scenario.c_str(), 1);
  return nvml_facts_from(to_text(read_nvml(SLURM_DDP_FAKE_NVML)));
}

struct GpuCase {
  const char* scenario;  // of the fake
  const char* findings;  // those that are not OK
};

}  // namespace ddp::check
