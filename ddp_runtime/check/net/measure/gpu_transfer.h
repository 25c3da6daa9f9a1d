// How much two GPUs send each other for a measurement of their speed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::check {

// This many pieces of so many bytes. Travels between the ends as it is: they are of one build.
struct GpuTransfer {
  std::uint64_t bytes = 0;
  std::uint64_t pieces = 0;
};

// As much as a fast link carries in a fifth of a second, in pieces of at most an eighth of a second
// of a slow one and of at most `most` bytes, which is at least 1. `per_second`: bytes that went in
// a second before, as one of the ends says; throws RuntimeError if it cannot be a speed.
GpuTransfer plan_transfer(std::size_t most, double per_second);

// What the other end announced. Throws RuntimeError if plan_transfer() would never say that.
void require_possible(const GpuTransfer& transfer, std::size_t most);

}  // namespace ddp::check
