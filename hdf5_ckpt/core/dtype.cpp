// SPDX-License-Identifier: Apache-2.0
// The table of element types.

#include "hdf5_ckpt/core/dtype.h"

#include <bit>

namespace ddp::ckpt {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and arrays are stored as in memory");

struct Entry {
  std::string_view name;
  std::size_t itemsize;
};

// Indexed by the enumerator.
constexpr std::array<Entry, kAllDTypes.size()> kEntries = {{
    {"float64", 8},
    {"float32", 4},
    {"float16", 2},
    {"bfloat16", 2},
    {"int64", 8},
    {"int32", 4},
    {"int16", 2},
    {"int8", 1},
    {"uint8", 1},
    {"bool", 1},
    {"float8_e4m3fn", 1},
    {"float8_e5m2", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"complex64", 8},
    {"complex128", 16},
}};

const Entry& entry(DType dtype) {
  return kEntries[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::string_view dtype_name(DType dtype) noexcept {
  return entry(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (const DType dtype : kAllDTypes)
    if (dtype_name(dtype) == name) return dtype;
  return std::nullopt;
}

bool is_of_first_versions(DType dtype) noexcept {
  return dtype <= DType::float8_e5m2;
}

std::size_t itemsize(DType dtype) noexcept {
  return entry(dtype).itemsize;
}

}  // namespace ddp::ckpt
