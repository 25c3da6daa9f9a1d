// SPDX-License-Identifier: Apache-2.0
// The options of a group whose collectives run on GPUs.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "ddp_runtime/comm/transport/link_limits.h"

namespace ddp::comm {

struct NcclOptions {
  // The number of this rank's GPU among those that this process sees. By default, the ranks of a
  // node take them in turns.
  std::optional<int> device;
  // Called on each rank before the libraries are looked for, for example to load them. May throw
  // UsageError, which all ranks then report.
  std::function<void()> prepare;
  // Files of the libraries, if they are neither in this process nor on the search path.
  std::string cuda_library;
  std::string nccl_library;
  // Time limit for connecting all GPUs.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(2);
  // Time limits of collectives; the sizes are not used.
  LinkLimits limits;
  // allocate() takes memory from pieces of this size, except for buffers of more than a quarter.
  std::size_t arena_bytes = std::size_t{64} << 20;
  // The number of thread blocks that NCCL may use, which it takes from kernels that compute; 0: its
  // own choice.
  int max_ctas = 0;
  std::chrono::milliseconds watch_interval{2};
  // Name of this machine; empty: the host name.
  std::string node;
};

}  // namespace ddp::comm
