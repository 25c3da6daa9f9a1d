// What should be the same on all nodes of a job: the processor, the system, drivers, firmware and
// the libraries that carry gradients.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/environment.h"

namespace ddp::check {

struct FactSources {
  std::filesystem::path root = "/";  // of /sys and /etc
  // Where the linker looks for libraries, the first one first.
  std::vector<std::filesystem::path> library_directories;
};

// The directories of LD_LIBRARY_PATH, then those of the distributions.
FactSources fact_sources(const Environment& environment);

// "kernel" to "6.1.0 x86_64", "driver.nvidia" to "535.104.05", "firmware.mlx5_0", "library.libnccl"
// to "libnccl.so.2.18.3". What a node lacks has no entry. Nothing is loaded or run for it: the
// version of a library is in the name of its file.
std::map<std::string, std::string> own_facts(const FactSources& sources);

}  // namespace ddp::check
