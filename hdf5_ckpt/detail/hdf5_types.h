#pragma once
// The element types as HDF5 sees them, chosen so that h5py shows them as what they are.

#include "hdf5_ckpt/dtype.h"
#include "hdf5_ckpt/hdf5_handle.h"

namespace ddp::ckpt {

// The type of a dataset in the file, little-endian on every machine. bfloat16 is a 16-bit float of
// 8 exponent and 7 mantissa bits (h5py widens it to float32); bool is the enumeration FALSE = 0,
// TRUE = 1 that h5py uses for its own. Call while holding an Hdf5Session.
Hdf5Type hdf5_type(DType dtype);

}  // namespace ddp::ckpt
