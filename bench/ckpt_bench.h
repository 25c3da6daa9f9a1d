// Saving and loading a checkpoint beside what the disk can do and what others do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace ddp::bench {

struct CkptBenchOptions {
  std::int64_t mib = 512;  // of float32, incompressible
  std::filesystem::path directory = ".";
  std::int64_t rounds = 5;
  std::string python = "/usr/bin/python3";  // that has torch and h5py
  bool with_python = true;
};

// On one process. Every round each writer writes the same arrays once, in rotated order, after the
// files of the one before are removed and the disk is quiet. "durable" is until fsync of file and
// directory have returned. Loads begin with the file's pages dropped from memory. Throws
// RuntimeError.
nlohmann::json run_ckpt_bench(const CkptBenchOptions& options);

}  // namespace ddp::bench
