// SPDX-License-Identifier: Apache-2.0
// `ddp-check node`: everything that can be checked on one node without using its network, in less
// than two seconds, so that it can run as SLURM's HealthCheckProgram.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "ddp_runtime/check/environment.h"
#include "ddp_runtime/check/node/interfaces_check.h"
#include "ddp_runtime/check/node/nvml.h"
#include "ddp_runtime/check/verdict.h"

namespace ddp::check {

struct NodeOptions {
  std::string node;                    // its name in findings
  std::filesystem::path root = "/";    // a different root is for tests
  std::filesystem::path sys = "/sys";  // also for tests
  std::string nvml_library = kNvmlLibrary;
  std::string kernel_log = "/dev/kmsg";
  std::vector<std::string> directories;  // besides /dev/shm and /tmp
  InterfaceExpectations interfaces;
  std::string counters_file;  // keeps error counters between runs; empty: not compared
  // Timeout of each operation that may hang: a file system, the name service, a driver. They run in
  // parallel.
  std::chrono::milliseconds timeout{1000};
  // Timeout of NVIDIA's driver, which may have to start the GPUs first.
  std::chrono::milliseconds gpu_timeout{5000};
};

struct NodeOutcome {
  Verdict verdict;
  bool left_behind = false;  // a probe still hangs in the kernel: exit with _Exit
};

NodeOutcome run_node_checks(const NodeOptions& options, const Environment& environment);

// This machine's host name.
std::string host_name();

}  // namespace ddp::check
