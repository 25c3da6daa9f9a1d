// Bytes of a foreign array in the order in which a checkpoint keeps them.

#include "hdf5_ckpt/foreign.h"

#include <cstring>

namespace ddp::ckpt {

std::vector<std::byte> dense_bytes(std::span<const std::byte> file, const ForeignArray& array) {
  const std::size_t item = itemsize(array.dtype);
  std::vector<std::byte> bytes(byte_count(array.dtype, array.shape).value());
  Shape index(array.shape.size(), 0);
  for (std::size_t at = 0; at < bytes.size(); at += item) {
    std::uint64_t element = 0;
    for (std::size_t i = 0; i < index.size(); ++i) element += index[i] * array.strides[i];
    std::memcpy(bytes.data() + at, file.data() + array.offset + element * item, item);
    for (std::size_t i = index.size(); i-- > 0;) {
      if (++index[i] < array.shape[i]) break;
      index[i] = 0;
    }
  }
  return bytes;
}

}  // namespace ddp::ckpt
