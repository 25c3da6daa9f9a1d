// SPDX-License-Identifier: Apache-2.0
// The element types that a checkpoint can hold, and their names in manifests and HDF5 attributes.
// Elements are little-endian, with the same bytes in the file as in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ddp::ckpt {

enum class DType : std::uint8_t {
  float64,
  float32,
  float16,
  bfloat16,
  int64,
  int32,
  int16,
  int8,
  uint8,
  boolean,
  float8_e4m3fn,  // the fn variant: no infinity, maximum 448
  float8_e5m2,
  uint16,
  uint32,
  uint64,
  complex64,  // two float32: real, imaginary
  complex128,
};

inline constexpr std::array kAllDTypes = {
    DType::float64,       DType::float32,     DType::float16, DType::bfloat16, DType::int64,
    DType::int32,         DType::int16,       DType::int8,    DType::uint8,    DType::boolean,
    DType::float8_e4m3fn, DType::float8_e5m2, DType::uint16,  DType::uint32,   DType::uint64,
    DType::complex64,     DType::complex128,
};

// Returns "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
// "bool", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex64", "complex128"
// (PyTorch's names).
std::string_view dtype_name(DType dtype) noexcept;

// Returns the type with this dtype_name; nullopt for any other string.
std::optional<DType> dtype_from_name(std::string_view name) noexcept;

// True if readers of format version 2 support the type.
bool is_of_first_versions(DType dtype) noexcept;

// Returns the number of bytes of one element.
std::size_t itemsize(DType dtype) noexcept;

}  // namespace ddp::ckpt
