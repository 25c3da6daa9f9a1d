// SPDX-License-Identifier: Apache-2.0
// HDF5 types for our element types. HDF5 1.10 does not predefine 16-bit floats, so they are
// described by their bit fields.

#include "hdf5_ckpt/write/hdf5_types.h"

#include <cstdint>

#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

const char* const kAction = "describe an element type";

Hdf5Type copy_of(hid_t type) {
  return {H5Tcopy(type), kAction};
}

// A 16-bit IEEE-like float: the sign in bit 15, then `exponent_bits` of exponent, then the
// mantissa.
Hdf5Type half_float(std::size_t exponent_bits) {
  Hdf5Type type = copy_of(H5T_IEEE_F32LE);
  const std::size_t mantissa_bits = 15 - exponent_bits;
  hdf5_check(H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits),
             kAction);
  hdf5_check(H5Tset_size(type.get(), 2), kAction);
  hdf5_check(H5Tset_ebias(type.get(), (std::size_t{1} << (exponent_bits - 1)) - 1), kAction);
  return type;
}

Hdf5Type boolean() {
  Hdf5Type type(H5Tenum_create(H5T_STD_I8LE), kAction);
  for (const std::int8_t value : {std::int8_t{0}, std::int8_t{1}})
    hdf5_check(H5Tenum_insert(type.get(), value != 0 ? "TRUE" : "FALSE", &value), kAction);
  return type;
}

// A compound {r, i}, as h5py, MATLAB and Julia write complex numbers.
Hdf5Type complex_of(hid_t part, std::size_t bytes) {
  Hdf5Type type(H5Tcreate(H5T_COMPOUND, 2 * bytes), kAction);
  hdf5_check(H5Tinsert(type.get(), "r", 0, part), kAction);
  hdf5_check(H5Tinsert(type.get(), "i", bytes, part), kAction);
  return type;
}

}  // namespace

Hdf5Type hdf5_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return copy_of(H5T_IEEE_F64LE);
    case DType::float32:
      return copy_of(H5T_IEEE_F32LE);
    case DType::float16:
      return half_float(5);
    case DType::bfloat16:
      return half_float(8);
    case DType::int64:
      return copy_of(H5T_STD_I64LE);
    case DType::int32:
      return copy_of(H5T_STD_I32LE);
    case DType::int16:
      return copy_of(H5T_STD_I16LE);
    case DType::int8:
      return copy_of(H5T_STD_I8LE);
    case DType::uint8:
    // HDF5 1.10 cannot describe e4m3fn, whose largest value has the encoding of an IEEE NaN: h5py
    // would show nan for 448. The attribute `dtype` gives the actual type.
    case DType::float8_e4m3fn:
    case DType::float8_e5m2:
      return copy_of(H5T_STD_U8LE);
    case DType::boolean:
      return boolean();
    case DType::uint16:
      return copy_of(H5T_STD_U16LE);
    case DType::uint32:
      return copy_of(H5T_STD_U32LE);
    case DType::uint64:
      return copy_of(H5T_STD_U64LE);
    case DType::complex64:
      return complex_of(H5T_IEEE_F32LE, sizeof(float));
    case DType::complex128:
      return complex_of(H5T_IEEE_F64LE, sizeof(double));
  }
  throw Error("an array has an unknown element type");
}

}  // namespace ddp::ckpt
