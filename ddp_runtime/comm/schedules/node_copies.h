// SPDX-License-Identifier: Apache-2.0
// The ranks' copies of one buffer in the shared memory of a node, and sums over them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/node/node_memory.h"

namespace ddp::comm::schedules {

// All copies of one piece of the buffer, by place.
using Copies = std::vector<Buffer>;

// The copies of `data`, which begins at `offset` of the region.
Copies copies_of(const SharedRegion& region, std::size_t offset, const Buffer& data);
Copies slice(const Copies& copies, std::size_t first, std::size_t count);

// Adds all copies, in order of place, to `before` (empty: the neutral element) and writes the sum
// to each of `into`. Works block by block, so that memory is read once and written once.
void add_up(std::span<const std::byte> before, const Copies& copies, const Copies& into,
            ReduceOp op);

// Copies `from` to those of `into` that are other memory.
void copy_to(const Copies& into, const Buffer& from);

}  // namespace ddp::comm::schedules
