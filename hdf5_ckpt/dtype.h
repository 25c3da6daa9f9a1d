#pragma once
// The element types a checkpoint can hold, and the names they carry in manifests and in HDF5
// attributes. Bytes are little-endian and lie in the file exactly as they lie in memory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ddp::ckpt {

enum class DType : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kFloat8E4M3,  // as the fn variants: no infinity, 448 the largest
  kFloat8E5M2,
  kUInt16,
  kUInt32,
  kUInt64,
  kComplex64,  // two float32: real, imaginary
  kComplex128,
};

inline constexpr std::array kAllDTypes = {
    DType::kFloat64,    DType::kFloat32,    DType::kFloat16, DType::kBFloat16, DType::kInt64,
    DType::kInt32,      DType::kInt16,      DType::kInt8,    DType::kUInt8,    DType::kBool,
    DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kUInt16,  DType::kUInt32,   DType::kUInt64,
    DType::kComplex64,  DType::kComplex128,
};

// "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
// "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex64", "complex128" (as
// PyTorch calls them).
std::string_view dtype_name(DType dtype) noexcept;

// The inverse of dtype_name; nothing for any other string.
std::optional<DType> dtype_from_name(std::string_view name) noexcept;

// Whether readers of version 2 of the format know it.
bool is_of_first_versions(DType dtype) noexcept;

// Bytes of one element.
std::size_t itemsize(DType dtype) noexcept;

}  // namespace ddp::ckpt
