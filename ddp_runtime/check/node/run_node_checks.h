// SPDX-License-Identifier: Apache-2.0
// `ddp-check node`: all checks of one node that do not use the network. Without the copies
// between GPUs they take less than two seconds, so that they can run as SLURM's HealthCheckProgram.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/environment.h"
#include "ddp_runtime/check/findings/verdict.h"
#include "ddp_runtime/check/node/gpu/gpu_copies.h"
#include "ddp_runtime/check/node/gpu/nvml.h"
#include "ddp_runtime/check/node/interfaces_check.h"

namespace ddp::check {

struct NodeOptions {
  std::string node;                    // name of this node in findings
  std::filesystem::path root = "/";    // tests use a different root
  std::filesystem::path sys = "/sys";  // tests use a different directory
  std::string nvml_library = kNvmlLibrary;
  // Also copies data to, from and between the GPUs. This takes longer, and must not be done on a
  // node with other jobs.
  bool gpu_copies = false;
  CopyOptions copies;
  std::string kernel_log = "/dev/kmsg";
  std::vector<std::string> directories;  // besides /dev/shm and /tmp
  InterfaceExpectations interfaces;
  std::string counters_file;  // keeps error counters between runs; empty: not compared
  // Timeout of each operation that may hang, such as a file system or the name service. These
  // operations run in parallel.
  std::chrono::milliseconds timeout{1000};
  // Timeout of NVIDIA's driver, which may have to start the GPUs first.
  std::chrono::milliseconds gpu_timeout{5000};
};

struct NodeOutcome {
  Verdict verdict;
  bool left_behind = false;  // a probe still hangs in the kernel: exit with _Exit
};

NodeOutcome run_node_checks(const NodeOptions& options, const Environment& environment);

}  // namespace ddp::check
