// SPDX-License-Identifier: Apache-2.0
// The state of a node's GPUs as reported by NVIDIA's management library (NVML).
#pragma once

#include <cstddef>
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

struct NvLink {
  unsigned number = 0;
  bool up = false;
  bool errors_known = false;  // the errors are those since the driver was loaded
  std::uint64_t replays = 0;
  std::uint64_t recoveries = 0;
  std::uint64_t crc_errors = 0;
};

inline constexpr std::uint64_t kPeerOk = 0;  // of NVML; other values are reasons

struct GpuPair {
  std::size_t first = 0;  // indexes in NvmlFacts::gpus
  std::size_t second = 0;
  std::optional<std::uint64_t> distance;  // NVML's topology level; empty if unknown
  GpuReading access;                      // to each other's memory: kPeerOk, or why not
  GpuReading nvlink;                      // the same for NVLinks between the two
};

struct GpuFacts {
  std::string name;         // "NVIDIA H100 80GB HBM3"
  std::string bus_address;  // "00000000:1B:00.0"
  std::string trouble;      // why the GPU cannot be reached; the other fields are then meaningless
  std::string needs_reset;  // the driver's words if it answered a question so; else empty
  GpuReading recovery;      // what the driver requests: see gpu_memory_errors.cpp
  GpuReading uncorrected;   // ECC errors since the driver was loaded
  GpuReading uncorrected_ever;  // in the GPU's life
  GpuReading corrected;         // since the driver was loaded
  GpuReading throttle;          // bits of the clocks' throttle reasons, in any of the readings
  GpuReading throttle_lasting;  // those in all readings
  GpuReading sm_clock;          // MHz
  GpuReading sm_clock_max;
  GpuReading utilization;          // percent of the last second
  GpuReading pcie_generation;      // of the link to the host
  GpuReading pcie_generation_max;  // that GPU and slot allow
  GpuReading pcie_width;           // lanes
  GpuReading pcie_width_max;
  bool read_under_load = false;  // the PCIe link was read while data was copied
  GpuReading pages_pending;      // 1: pages will be retired at the next reset
  GpuReading rows_pending;       // 1: rows will be remapped at the next reset
  GpuReading rows_failed;        // 1: no spare row was left
  GpuReading links_up;           // number of active NVLinks
  GpuReading links_down;
  GpuReading links_to_switch;  // number of active NVLinks that lead to an NVSwitch
  std::vector<NvLink> links;
  GpuReading mig;           // 1: the GPU is divided into MIG devices
  GpuReading mig_devices;   // number of those that this process may use
  GpuReading persistence;   // 0: the driver shuts the GPU down when no program uses it
  GpuReading memory_total;  // bytes
  GpuReading memory_used;
  GpuReading processes_known;  // number of processes that compute on it
  std::vector<int> processes;  // their ids
};

struct NvmlFacts {
  bool library_found = false;
  std::string trouble;  // why nothing could be queried; empty on success
  std::string driver;   // "550.54.15"
  // What the library has no function for: "memory errors (no nvmlDeviceGetTotalEccErrors)".
  std::vector<std::string> not_checked;
  std::vector<GpuFacts> gpus;
  std::vector<GpuPair> pairs;
};

// Whether the GPU is divided into MIG devices, perhaps none.
inline bool is_divided(const GpuFacts& gpu) {
  return gpu.mig.value.value_or(0) != 0;
}

// Serialization, because a separate process queries the GPUs. The second function throws
// JsonError or nlohmann::json::exception.
std::string to_text(const NvmlFacts& facts);
NvmlFacts nvml_facts_from(const std::string& text);

}  // namespace ddp::check
