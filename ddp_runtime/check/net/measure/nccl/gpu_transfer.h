// SPDX-License-Identifier: Apache-2.0
// Plans the amount of data that two GPUs exchange to measure their speed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::check {

// `pieces` messages of `bytes` each. Sent as raw memory: both ends run the same build.
struct GpuTransfer {
  std::uint64_t bytes = 0;
  std::uint64_t pieces = 0;
};

// Plans a fifth of a second of data on a fast link. A piece takes at most an eighth of a second on
// a slow link and has at most `most` bytes; `most` must be at least 1. `per_second`: the speed in
// bytes per second that one end measured earlier. Throws RuntimeError if `per_second` is not a
// possible speed.
GpuTransfer plan_transfer(std::size_t most, double per_second);

// Checks the plan that the other end announced. Throws RuntimeError if plan_transfer() would never
// return it.
void require_possible(const GpuTransfer& transfer, std::size_t most);

}  // namespace ddp::check
