// SPDX-License-Identifier: Apache-2.0
// How much data two GPUs exchange to measure their speed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::check {

// `pieces` messages of `bytes` each. Sent as raw memory: both ends run the same build.
struct GpuTransfer {
  std::uint64_t bytes = 0;
  std::uint64_t pieces = 0;
};

// As much as a fast link carries in a fifth of a second, in pieces of at most an eighth of a second
// on a slow link and of at most `most` bytes, which is at least 1. `per_second`: the speed in bytes
// per second that one of the ends measured before; throws RuntimeError if that cannot be a speed.
GpuTransfer plan_transfer(std::size_t most, double per_second);

// The plan that the other end announced. Throws RuntimeError if plan_transfer() would never return
// it.
void require_possible(const GpuTransfer& transfer, std::size_t most);

}  // namespace ddp::check
