#pragma once
// Arrays that are stored in parts: whether the parts are parts of one array and make up all of it,
// and which bytes a part of what is stored and a part that is wanted have in common.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/array.h"

namespace ddp::ckpt {

// Why a part of this shape cannot be where `part` says: "reaches to 5 of 4 in dimension 0". Empty
// if it can.
std::string part_problem(DType dtype, const Shape& shape, const PartOf& part);

// Why these parts, each of which passed part_problem(), are not together one array, each element
// once: "has a hole: ...". Empty if they are. Comparing every part with every other would take an
// attacker's manifest hours: `comparisons` counts those made, and beyond kMaxComparisons the answer
// is that there are too many.
inline constexpr std::uint64_t kMaxComparisons = 1ULL << 26;
std::string cover_problem(std::span<const ArrayInfo> parts, std::uint64_t& comparisons);

// A part, or all, of an array: elements start[d] to start[d] + extent[d] of dimension d.
struct Box {
  Shape start;
  Shape extent;
};

// All of it, where nothing says that it is a part.
Box box_of(const Shape& shape, const std::optional<PartOf>& part);

// Cuts an array into boxes that are contiguous in it, in their order, each of at most `piece_bytes`
// (or one element): `piece` is called with each. For an array without elements it is not.
void for_each_piece(DType dtype, const Shape& shape, std::uint64_t piece_bytes,
                    const std::function<void(const Box& box)>& piece);

// The elements that two boxes of one array have in common, as runs of bytes that are contiguous in
// both, each box being dense and row-major in memory of its own.
class Overlap {
 public:
  struct Run {
    std::uint64_t from = 0;  // bytes from the start of the first box
    std::uint64_t to = 0;    // bytes from the start of the second
    std::uint64_t length = 0;
  };

  // The bytes of each box must fit in 63 bits.
  Overlap(const Box& from, const Box& to, std::uint64_t itemsize);

  // Runs come in the order of both boxes.
  std::uint64_t runs() const noexcept { return runs_; }
  Run run(std::uint64_t index) const noexcept;

  // The first run that ends beyond byte `at` of the first box; runs() if none does.
  std::uint64_t first_run_beyond(std::uint64_t at) const noexcept;

  // Whether any of bytes [begin, end) of the first box is in common.
  bool touches(std::uint64_t begin, std::uint64_t end) const noexcept;

 private:
  struct Dimension {
    std::uint64_t count = 0;      // steps
    std::uint64_t from_step = 0;  // bytes
    std::uint64_t to_step = 0;
  };
  std::vector<Dimension> outer_;  // a run for each combination of steps, the last the fastest
  Run first_;
  std::uint64_t runs_ = 0;
};

}  // namespace ddp::ckpt
