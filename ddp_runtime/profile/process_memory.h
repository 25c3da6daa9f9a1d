// SPDX-License-Identifier: Apache-2.0
// The memory of this process, as counted by the kernel.
#pragma once

#include <cstdint>

namespace ddp::profile {

// All values are in bytes.
struct ProcessMemory {
  std::int64_t anonymous = 0;  // heap and stacks
  std::int64_t shared = 0;     // shared memory that this process has touched
  std::int64_t file = 0;       // programs and libraries
  std::int64_t peak = 0;       // peak of the sum of the three
};

// Throws RuntimeError if the kernel does not report it.
ProcessMemory process_memory();

// Shared memory that this process has touched, each page divided by the number of processes that
// have. Takes time for each page of the process: about 1 s for 100 GB. Throws RuntimeError if the
// kernel does not report it.
std::int64_t share_of_shared_memory();

// Restarts the measurement of `peak`. Throws RuntimeError if that is not permitted.
void reset_peak_memory();

// The peak since the process began, however often its measurement was restarted.
std::int64_t largest_memory() noexcept;

}  // namespace ddp::profile
