// SPDX-License-Identifier: Apache-2.0
// Queries NVIDIA's management library (NVML). It is loaded at run time, because the build machine
// and nodes without GPUs do not have it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ddp_runtime/check/node/gpu/gpu_facts.h"

namespace ddp::nvml {
struct Functions;
}

namespace ddp::check {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// Loads `library`, a name or a path, and reads at most 64 GPUs. May hang in the driver, so call it
// in a process that can be killed, such as Subprocess.
NvmlFacts read_nvml(const std::string& library);

struct PcieLink {
  std::uint64_t generation = 0;
  std::uint64_t width = 0;  // lanes
};

// Reads the present PCIe links of GPUs, for use while they are under load.
class PcieObserver {
 public:
  // Observes nothing if the library cannot be loaded or started.
  explicit PcieObserver(const std::string& library);
  // Returns nullopt if the link cannot be read.
  std::optional<PcieLink> pcie_link(const std::string& bus_address) const;

 private:
  std::shared_ptr<const nvml::Functions> functions_;
};

}  // namespace ddp::check
