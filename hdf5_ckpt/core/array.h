// SPDX-License-Identifier: Apache-2.0
// Named arrays in the caller's memory (views), in a file (ArrayInfo) and as the result of a read
// (OwnedArray). Each is a whole array or one part of an array that is distributed over ranks.
// Arrays and parts are dense, row-major and little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/dtype.h"

namespace ddp::ckpt {

// Elements per dimension, outermost first. Empty for a scalar; a zero makes the array empty.
using Shape = std::vector<std::uint64_t>;

// Position of a part: its element (i, j, ...) is element (start[0] + i, start[1] + j, ...) of an
// array of `global_shape`. All three have the same number of dimensions; a part may be empty.
struct PartOf {
  Shape global_shape;
  Shape start;

  bool operator==(const PartOf&) const = default;
};

// An array to save, or a part of one. For a part, `shape` is the shape of the part. Borrows
// `bytes`, which must not change until the save has returned; bytes.size() == product(shape) *
// itemsize(dtype).
struct ArrayView {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::span<const std::byte> bytes;
  std::optional<PartOf> part = {};
};

// Destination of a loaded array or of any part of it, however the stored array is split. Borrows
// `bytes`, sized as in ArrayView.
struct MutableArrayView {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::span<std::byte> bytes;
  std::optional<PartOf> part = {};
};

struct OwnedArray {
  DType dtype = DType::float32;
  Shape shape;
  std::vector<std::byte> bytes;
};

// Metadata of one stored array, or of one stored part of an array.
struct ArrayInfo {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::string file;          // name of the HDF5 file, in the checkpoint's directory
  std::uint64_t offset = 0;  // bytes from the start of that file; 0 for an empty array
  std::uint64_t length = 0;  // bytes
  std::uint32_t crc32c = 0;  // of all bytes
  std::vector<std::uint32_t> block_crc32c;  // one per block; the last block may be shorter
  std::optional<PartOf> part = {};          // nullopt: `shape` is the whole array

  // Returns the shape of the whole array, even for a part.
  const Shape& global_shape() const noexcept { return part ? part->global_shape : shape; }

  bool operator==(const ArrayInfo&) const = default;
};

// Returns product(shape) * itemsize(dtype); nullopt if that does not fit in 63 bits.
std::optional<std::uint64_t> byte_count(DType dtype, const Shape& shape) noexcept;

// Returns "[64, 3, 7, 7]" for messages; "[]" for a scalar.
std::string shape_text(const Shape& shape);

}  // namespace ddp::ckpt
