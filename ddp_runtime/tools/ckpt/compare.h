#pragma once
// How far two arrays of the same dtype and shape are apart.

#include <cstdint>

#include "hdf5_ckpt/array.h"

namespace ddp::ckpt::tool {

struct ArrayDifference {
  std::uint64_t elements = 0;  // whose bits differ
  // Largest |a - b| among them; NaN if one of a pair is NaN or infinite. For int64, rounded to
  // what a double holds.
  double max_abs = 0;
};

// Two NaNs of the same bits are equal, 0.0 and -0.0 are not.
ArrayDifference compare_arrays(const OwnedArray& a, const OwnedArray& b);

}  // namespace ddp::ckpt::tool
