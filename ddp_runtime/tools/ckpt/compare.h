// SPDX-License-Identifier: Apache-2.0
// The difference between two arrays of the same dtype and shape.
#pragma once

#include <cstdint>

#include "hdf5_ckpt/core/array.h"

namespace ddp::ckpt::tool {

struct ArrayDifference {
  std::uint64_t elements = 0;  // number of elements with different bits
  // Largest |a - b| among them; NaN if either value of a pair is NaN or infinite. int64 is rounded
  // to the precision of a double.
  double max_abs = 0;
};

// NaNs with the same bits are equal; 0.0 and -0.0 are not.
ArrayDifference compare_arrays(const OwnedArray& a, const OwnedArray& b);

}  // namespace ddp::ckpt::tool
