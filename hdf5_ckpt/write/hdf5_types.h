// SPDX-License-Identifier: Apache-2.0
// The HDF5 types of the element types, chosen so that h5py shows the corresponding numpy types.
#pragma once

#include "hdf5_ckpt/core/dtype.h"
#include "hdf5_ckpt/core/hdf5_handle.h"

namespace ddp::ckpt {

// Returns the file type of a dataset, little-endian on every machine. bfloat16 is a 16-bit float
// with 8 exponent and 7 mantissa bits (h5py widens it to float32); bool is the enumeration FALSE =
// 0, TRUE = 1, which h5py uses for its own booleans. Call while holding an Hdf5Session.
Hdf5Type hdf5_type(DType dtype);

}  // namespace ddp::ckpt
