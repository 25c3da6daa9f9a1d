#pragma once
// A named array as the caller holds it (views), as a file holds it (ArrayInfo), and as a read
// returns it (OwnedArray); whole, or a part of one that several ranks hold together. Arrays and
// parts are dense, row-major and little-endian.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/dtype.h"

namespace ddp::ckpt {

// Elements per dimension, outermost first. Empty for a scalar; a zero makes an empty array.
using Shape = std::vector<std::uint64_t>;

// Where a part lies: its element (i, j, ...) is element (start[0] + i, start[1] + j, ...) of an
// array of `global_shape`. All three have the same number of dimensions; a part may be empty.
struct PartOf {
  Shape global_shape;
  Shape start;

  bool operator==(const PartOf&) const = default;
};

// An array to be saved, or a part of one: `shape` is then that of the part. Borrows `bytes`, which
// must not change until the save has returned; bytes.size() == product(shape) * itemsize(dtype).
struct ArrayView {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::span<const std::byte> bytes;
  std::optional<PartOf> part = {};
};

// Where a loaded array goes, or any part of one, whatever the parts are that it is stored in.
// Borrows `bytes`, sized as in ArrayView.
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

// What a checkpoint knows about what one of its files holds: an array or a part of one.
struct ArrayInfo {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::string file;          // name of the HDF5 file, in the checkpoint's directory
  std::uint64_t offset = 0;  // bytes from the start of that file; 0 for an empty array
  std::uint64_t length = 0;  // bytes
  std::uint32_t crc32c = 0;  // of all bytes
  std::vector<std::uint32_t> block_crc32c;  // one per started FileInfo::block_bytes
  std::optional<PartOf> part = {};          // nothing: `shape` is all of the array

  // Of the array that this is, or is a part of.
  const Shape& global_shape() const noexcept { return part ? part->global_shape : shape; }

  bool operator==(const ArrayInfo&) const = default;
};

// product(shape) * itemsize(dtype), or nothing if that does not fit in 63 bits.
std::optional<std::uint64_t> byte_count(DType dtype, const Shape& shape) noexcept;

// "[64, 3, 7, 7]" for messages; "[]" for a scalar.
std::string shape_text(const Shape& shape);

}  // namespace ddp::ckpt
