// SPDX-License-Identifier: Apache-2.0
// Speed of saving and loading a checkpoint, compared with the limit of the disk and with other
// writers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace ddp::bench {

struct CkptBenchOptions {
  std::int64_t mib = 512;  // MiB of float32, incompressible
  std::filesystem::path directory = ".";
  std::int64_t rounds = 5;
  std::string python = "/usr/bin/python3";  // must have torch and h5py
  bool with_python = true;
};

// Runs on one process. In every round each writer writes the same arrays once, in rotated order,
// after the previous writer's files have been removed and the disk is idle. "durable" is the time
// until fsync of the file and its directory have returned. Before a load, the file's pages are
// dropped from memory. Throws RuntimeError.
nlohmann::json run_ckpt_bench(const CkptBenchOptions& options);

}  // namespace ddp::bench
