// SPDX-License-Identifier: Apache-2.0
// Copies the elements of an external array in the order in which a checkpoint stores them.

#include "hdf5_ckpt/convert/external.h"

#include <cstring>

namespace ddp::ckpt {

bool is_dense(const ExternalArray& array) {
  std::uint64_t usual = 1;
  for (std::size_t d = array.shape.size(); d-- > 0;) {
    if (array.shape[d] == 0) return true;
    if (array.shape[d] != 1 && array.strides[d] != usual) return false;
    usual *= array.shape[d];
  }
  return true;
}

void copy_elements(std::span<const std::byte> file, const ExternalArray& array, std::uint64_t first,
                   std::span<std::byte> out) {
  const std::size_t item = itemsize(array.dtype);
  Shape index(array.shape.size(), 0);
  for (std::size_t d = index.size(); d-- > 0 && array.shape[d] != 0;) {
    index[d] = first % array.shape[d];
    first /= array.shape[d];
  }
  for (std::size_t at = 0; at < out.size(); at += item) {
    std::uint64_t element = 0;
    for (std::size_t d = 0; d < index.size(); ++d) element += index[d] * array.strides[d];
    std::memcpy(out.data() + at, file.data() + array.offset + element * item, item);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < array.shape[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace ddp::ckpt
