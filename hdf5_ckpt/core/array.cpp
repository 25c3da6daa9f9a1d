// SPDX-License-Identifier: Apache-2.0
// Sizes and shapes of arrays.

#include "hdf5_ckpt/core/array.h"

#include <fmt/ranges.h>

#include <limits>

namespace ddp::ckpt {

std::optional<std::uint64_t> byte_count(DType dtype, const Shape& shape) noexcept {
  // A zero in any dimension makes the array empty, however large the other dimensions are. Their
  // product must still be representable, or readers that multiply in a different order would
  // overflow.
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::uint64_t bytes = itemsize(dtype);
  bool empty = false;
  for (const std::uint64_t n : shape) {
    if (n == 0) {
      empty = true;
    } else if (n > kMax / bytes) {
      return std::nullopt;
    } else {
      bytes *= n;
    }
  }
  return empty ? 0 : bytes;
}

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace ddp::ckpt
