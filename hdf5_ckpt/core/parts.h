// SPDX-License-Identifier: Apache-2.0
// Arrays stored in parts. Checks that parts belong to one array and cover it, and finds the bytes
// that a stored part and a requested part have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/array.h"

namespace ddp::ckpt {

// Returns the reason why a part of this shape cannot be at `part`; empty if it can.
std::string part_problem(DType dtype, const Shape& shape, const PartOf& part);

// Returns the reason why these parts, each of which passed part_problem(), do not form one array
// with each element exactly once ("has a hole: ..."); empty if they do. Comparing every part with
// every other could take hours for a malicious manifest, so `comparisons` counts the comparisons,
// and more than kMaxComparisons are a problem too.
inline constexpr std::uint64_t kMaxComparisons = 1ULL << 26;
std::string cover_problem(std::span<const ArrayInfo> parts, std::uint64_t& comparisons);

// A part of an array, or all of it: elements start[d] to start[d] + extent[d] of dimension d.
struct Box {
  Shape start;
  Shape extent;
};

// Returns the box of a part, or of the whole array if `part` is nullopt.
Box box_of(const Shape& shape, const std::optional<PartOf>& part);

// Divides an array into boxes that are contiguous in it, in order, each of at most `piece_bytes`
// (or one element), and calls `piece` with each. Does not call it for an array without elements.
void for_each_piece(DType dtype, const Shape& shape, std::uint64_t piece_bytes,
                    const std::function<void(const Box& box)>& piece);

// The elements that two boxes of one array have in common, as runs of bytes that are contiguous in
// both; each box is dense and row-major in its own memory.
class Overlap {
 public:
  struct Run {
    std::uint64_t from = 0;  // bytes from the start of the first box
    std::uint64_t to = 0;    // bytes from the start of the second
    std::uint64_t length = 0;
  };

  // The bytes of each box must fit in 63 bits.
  Overlap(const Box& from, const Box& to, std::uint64_t itemsize);

  // Runs are in the order of both boxes.
  std::uint64_t runs() const noexcept { return runs_; }
  Run run(std::uint64_t index) const noexcept;

  // Returns the first run that extends beyond byte `at` of the first box; runs() if there is none.
  std::uint64_t first_run_beyond(std::uint64_t at) const noexcept;

  // True if the boxes share any of the bytes [begin, end) of the first box.
  bool touches(std::uint64_t begin, std::uint64_t end) const noexcept;

 private:
  struct Dimension {
    std::uint64_t count = 0;      // steps
    std::uint64_t from_step = 0;  // bytes
    std::uint64_t to_step = 0;
  };
  // One run for each combination of steps, the last dimension varying fastest.
  std::vector<Dimension> outer_;
  Run first_;
  std::uint64_t runs_ = 0;
};

}  // namespace ddp::ckpt
