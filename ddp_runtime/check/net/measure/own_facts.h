// SPDX-License-Identifier: Apache-2.0
// Facts that should be the same on all nodes of a job: CPU, operating system, drivers, firmware and
// the libraries that carry gradients.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/environment.h"

namespace ddp::check {

struct FactSources {
  std::filesystem::path root = "/";  // parent directory of /sys and /etc
  // Where the loader looks for libraries, in search order.
  std::vector<std::filesystem::path> library_directories;
};

// The directories of LD_LIBRARY_PATH, then the defaults of the distributions.
FactSources fact_sources(const Environment& environment);

// "kernel" -> "6.1.0 x86_64", "driver.nvidia" -> "535.104.05", "firmware.mlx5_0", "library.libnccl"
// -> "libnccl.so.2.18.3". A missing driver or library has no entry. This loads no library and runs
// no program: the version of a library is part of its file name.
std::map<std::string, std::string> own_facts(const FactSources& sources);

}  // namespace ddp::check
