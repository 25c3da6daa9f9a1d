// How much memory this process has, as the kernel counts it.
#pragma once

#include <cstdint>

namespace ddp::bench {

// In bytes.
struct ProcessMemory {
  std::int64_t anonymous = 0;  // heap and stacks
  std::int64_t shared = 0;     // shared memory, as far as this process has touched it
  std::int64_t file = 0;       // programs and libraries
  std::int64_t peak = 0;       // the most that the three together have been
};

// Throws RuntimeError if the kernel does not tell.
ProcessMemory process_memory();

// From here on `peak` is the most since now. Throws RuntimeError if that is not allowed.
void reset_peak_memory();

}  // namespace ddp::bench
