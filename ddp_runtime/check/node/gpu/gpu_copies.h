// SPDX-License-Identifier: Apache-2.0
// Copies data between the host and each GPU and between all pairs of GPUs, verifies it, and
// measures the speeds. It takes memory and bandwidth from other programs, so it is for nodes whose
// GPUs belong to this job.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/node/gpu/gpu_facts.h"

namespace ddp::check {

struct CopyOptions {
  std::string cuda_library = "libcuda.so.1";
  std::string nvml_library;
  std::size_t bytes = std::size_t{64} << 20;  // per copy; twice that is allocated per GPU
  std::chrono::milliseconds timeout{30'000};  // for everything
  std::vector<std::string> busy;              // bus addresses of GPUs that others use
};

struct CopyResult {
  bool measured = false;
  double bytes_per_second = 0;
  std::int64_t wrong_bytes = 0;
  int code = 0;         // the driver's error; 0: none
  std::string trouble;  // why there is no speed
};

struct GpuCopies {
  std::string bus_address;
  std::string trouble;  // why the GPU was not measured
  CopyResult to_gpu;
  CopyResult from_gpu;
  GpuReading pcie_generation;  // while data was copied
  GpuReading pcie_width;
};

struct PairCopies {
  std::size_t from = 0;  // indexes in CopyFacts::gpus
  std::size_t to = 0;
  bool direct = false;  // the GPUs access each other's memory
  CopyResult result;
};

struct CopyFacts {
  std::string trouble;     // why nothing was measured
  std::string unfinished;  // what was under way when time ran out: "copying to 0000:01:00.0"
  std::vector<GpuCopies> gpus;
  std::vector<PairCopies> pairs;
};

// Runs in a separate process, which is killed after the timeout. Call it before starting threads.
CopyFacts measure_copies(const CopyOptions& options);

// Enters what was read under load. The GPUs of the two libraries have the same bus addresses, but
// one writes domains with four digits, the other with eight.
void enter_loaded_links(const CopyFacts& copies, NvmlFacts& facts);
bool is_same_bus_address(const std::string& a, const std::string& b);

// Without side effects. Wrong data is CRITICAL, and so are errors of the hardware. A slow GPU is
// only WARNING, because a speed depends on the host, too.
std::vector<Finding> evaluate_copies(const CopyFacts& copies);

// For the file of results.
nlohmann::json json_of(const CopyFacts& copies);

}  // namespace ddp::check
