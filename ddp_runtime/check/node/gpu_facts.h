// What NVIDIA's management library says of a node's GPUs, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::check {

// One answer of the library. Neither value nor trouble: the question does not apply to this GPU.
struct GpuReading {
  std::optional<std::uint64_t> value = {};
  std::string trouble = {};  // why there is no value
};

struct GpuFacts {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  std::string bus_address;   // "00000000:1B:00.0"
  std::string trouble;       // why the GPU cannot be reached; the rest then says nothing
  GpuReading uncorrected;    // ECC errors since the driver was loaded
  GpuReading throttle;       // bits of the clocks' throttle reasons
  GpuReading pages_pending;  // 1: pages will be retired at the next reset
  GpuReading rows_pending;   // 1: rows will be remapped at the next reset
  GpuReading rows_failed;    // 1: no spare row was left
  GpuReading links_up;       // NVLinks
  GpuReading links_down;
  GpuReading memory_total;  // bytes
  GpuReading memory_used;
  GpuReading processes_known;  // how many compute on it
  std::vector<int> processes;  // their ids
};

struct NvmlFacts {
  bool library_found = false;
  std::string trouble;  // why nothing could be asked; empty if all went well
  std::string driver;   // "550.54.15"
  std::vector<GpuFacts> gpus;
};

// For the way out of the process that asks. The second throws nlohmann::json::exception.
std::string to_text(const NvmlFacts& facts);
NvmlFacts nvml_facts_from(const std::string& text);

}  // namespace ddp::check
