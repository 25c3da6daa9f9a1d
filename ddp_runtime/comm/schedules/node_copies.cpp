// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/node_copies.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ddp_runtime/comm/group/host_reduce.h"

namespace ddp::comm::schedules {
namespace {

// Small enough that a block stays in the L1 cache between reading and writing.
constexpr std::size_t kBlockBytes = 16384;

}  // namespace

Copies copies_of(const SharedRegion& region, std::size_t offset, const Buffer& data) {
  Copies copies;
  copies.reserve(region.copies.size());
  for (std::byte* copy : region.copies) copies.push_back({copy + offset, data.count, data.type});
  return copies;
}

Copies slice(const Copies& copies, std::size_t first, std::size_t count) {
  Copies part;
  part.reserve(copies.size());
  for (const Buffer& copy : copies) part.push_back(copy.slice(first, count));
  return part;
}

void add_up(std::span<const std::byte> before, const Copies& copies, const Copies& into,
            ReduceOp op) {
  alignas(64) std::array<std::byte, kBlockBytes> block;
  const std::size_t element = size_of(copies.front().type);
  const std::size_t per_block = kBlockBytes / element;
  const std::size_t count = copies.front().count;
  for (std::size_t at = 0; at < count; at += per_block) {
    const std::size_t n = std::min(per_block, count - at);
    const Buffer sum{block.data(), n, copies.front().type};
    const std::byte* const start =
        before.empty() ? copies.front().slice(at, n).data : before.data() + at * element;
    std::memcpy(block.data(), start, n * element);
    for (std::size_t c = before.empty() ? 1 : 0; c < copies.size(); ++c) {
      reduce_into(sum, copies[c].slice(at, n).span(), op);
    }
    for (const Buffer& copy : into) std::memcpy(copy.slice(at, n).data, block.data(), n * element);
  }
}

void copy_to(const Copies& into, const Buffer& from) {
  if (from.count == 0) return;
  for (const Buffer& copy : into) {
    if (copy.data != from.data) std::memcpy(copy.data, from.data, from.bytes());
  }
}

}  // namespace ddp::comm::schedules
