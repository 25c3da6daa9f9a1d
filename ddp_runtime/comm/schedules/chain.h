// SPDX-License-Identifier: Apache-2.0
// All-reduce along a chain of ranks, in exact rank order.
//
// A segment starts at the first rank and travels to the last one while each rank adds its part, and
// the finished segment travels back. Many segments are in flight at once, in both directions. The
// order of the additions is ((g0 + g1) + g2) + ..., the order of one process that accumulates n
// micro-batches, so the result is bitwise equal for any segment size and any transport.
//
// Each rank in the middle sends and receives 2 S bytes, as in the ring. The two ranks at the ends
// send and receive S bytes. The chain takes 2 (n - 1) segment times longer to fill and drain.
#pragma once

#include <functional>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/group/subgroup.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/transport/link.h"

namespace ddp::comm::schedules {

// Takes the sum of the parts of the ranks before this one for elements [first, first + count) of
// the buffer, adds this rank's part and stores the result in the buffer. `incoming` is empty on the
// first rank.
using Contribute =
    std::function<void(std::size_t first, std::size_t count, std::span<std::byte> incoming)>;
// Elements [first, first + count) of the buffer are final.
using Finished = std::function<void(std::size_t first, std::size_t count)>;

void all_reduce_chain(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                      Scratch& scratch);

// Runs a chain in which the caller does the additions, for a rank that represents several.
void chain(Link& link, const Subgroup& group, Buffer data, Scratch& scratch,
           const Contribute& contribute, const Finished& finished);

}  // namespace ddp::comm::schedules
