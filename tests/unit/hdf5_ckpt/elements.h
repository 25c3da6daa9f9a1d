// SPDX-License-Identifier: Apache-2.0
// Processes arrays and boxes element by element, which is slow but obviously correct.
#pragma once

#include <cstdint>
#include <optional>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/parts.h"

namespace ddp::ckpt::test {

// Calls visit(index) for every element of a shape, in memory order.
template <typename Visit>
void for_each_element(const Shape& shape, const Visit& visit) {
  Shape index(shape.size(), 0);
  std::uint64_t elements = 1;
  for (const std::uint64_t n : shape) elements *= n;
  for (std::uint64_t i = 0; i < elements; ++i) {
    visit(index);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

// Returns the position, in elements, of element `index` of the whole array in a box; nullopt if it
// is outside.
inline std::optional<std::uint64_t> place_in(const Box& box, const Shape& index) {
  std::uint64_t place = 0;
  for (std::size_t d = 0; d < index.size(); ++d) {
    if (index[d] < box.start[d] || index[d] >= box.start[d] + box.extent[d]) return std::nullopt;
    place = place * box.extent[d] + (index[d] - box.start[d]);
  }
  return place;
}

}  // namespace ddp::ckpt::test
