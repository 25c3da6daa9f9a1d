// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/parts.h"

#include <numeric>
#include <stdexcept>

namespace ddp::comm {
namespace {

void require_parts(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

std::vector<Buffer> divide(const Buffer& whole, std::vector<std::size_t> sizes, std::size_t ranks) {
  if (sizes.empty()) {
    require_parts(whole.count % ranks == 0,
                  "all_to_all: the number of elements must be a multiple of size(), or the sizes "
                  "of the parts must be given");
    sizes.assign(ranks, whole.count / ranks);
  }
  require_parts(sizes.size() == ranks, "all_to_all: there must be one part per rank");
  require_parts(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) == whole.count,
                "all_to_all: the parts must add up to the elements of their buffer");
  std::vector<Buffer> parts;
  std::size_t first = 0;
  for (const std::size_t size : sizes) {
    parts.push_back(whole.slice(first, size));
    first += size;
  }
  return parts;
}

}  // namespace

Parts find_parts(const Buffer& input, const Buffer& output, const PartSizes& sizes, int rank,
                 int size) {
  require_parts(input.type == output.type, "all_to_all: both buffers must have one type");
  const auto ranks = static_cast<std::size_t>(size);
  const auto mine = static_cast<std::size_t>(rank);
  Parts parts{divide(input, sizes.input, ranks), divide(output, sizes.output, ranks)};
  require_parts(parts.input[mine].count == parts.output[mine].count,
                "all_to_all: the part of a rank for itself must have one size");
  return parts;
}

}  // namespace ddp::comm
