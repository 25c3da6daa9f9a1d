// SPDX-License-Identifier: Apache-2.0
// The state of a node's GPUs as reported by NVIDIA's management library (NVML).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::check {

// One reading. If both `value` and `trouble` are empty, the reading does not apply to this GPU.
struct GpuReading {
  std::optional<std::uint64_t> value = {};
  std::string trouble = {};  // why there is no value
};

struct GpuFacts {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  std::string bus_address;   // "00000000:1B:00.0"
  std::string trouble;       // why the GPU cannot be reached; the other fields are then meaningless
  GpuReading uncorrected;    // ECC errors since the driver was loaded
  GpuReading throttle;       // bits of the clocks' throttle reasons
  GpuReading pages_pending;  // 1: pages will be retired at the next reset
  GpuReading rows_pending;   // 1: rows will be remapped at the next reset
  GpuReading rows_failed;    // 1: no spare row was left
  GpuReading links_up;       // number of active NVLinks
  GpuReading links_down;
  GpuReading memory_total;  // bytes
  GpuReading memory_used;
  GpuReading processes_known;  // number of processes that compute on it
  std::vector<int> processes;  // their ids
};

struct NvmlFacts {
  bool library_found = false;
  std::string trouble;  // why nothing could be queried; empty on success
  std::string driver;   // "550.54.15"
  std::vector<GpuFacts> gpus;
};

// Serialization, because a separate process queries the GPUs. The second function throws
// nlohmann::json::exception.
std::string to_text(const NvmlFacts& facts);
NvmlFacts nvml_facts_from(const std::string& text);

}  // namespace ddp::check
