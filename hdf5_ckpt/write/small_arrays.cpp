// SPDX-License-Identifier: Apache-2.0
// The copies have the same order in memory as in the file, where HDF5 places small arrays side by
// side.

#include "hdf5_ckpt/write/small_arrays.h"

#include "hdf5_ckpt/core/crc32c.h"

namespace ddp::ckpt {

SmallArrays::SmallArrays(std::span<const ArrayView* const> arrays) {
  for (const ArrayView* array : arrays) {
    const std::uint64_t length = array->bytes.size();
    if (length > kSmallBytes || bytes_.size() + length > kMaxBytes) {
      crcs_.emplace_back();
      lengths_.push_back(0);
      continue;
    }
    bytes_.insert(bytes_.end(), array->bytes.begin(), array->bytes.end());
    crcs_.emplace_back(crc32c(std::span(bytes_).last(length)));
    lengths_.push_back(length);
  }
}

void SmallArrays::write(std::span<const std::uint64_t> offsets, TargetFile& target) const {
  std::span<const std::byte> rest = bytes_;
  std::uint64_t begin = 0;   // file offset of the bytes that are
  std::uint64_t length = 0;  // still to be written
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    if (lengths_[i] == 0) continue;
    if (length != 0 && offsets[i] != begin + length) {
      target.write(rest.first(length), begin);
      rest = rest.subspan(length);
      length = 0;
    }
    if (length == 0) begin = offsets[i];
    length += lengths_[i];
  }
  if (length != 0) target.write(rest.first(length), begin);
}

}  // namespace ddp::ckpt
