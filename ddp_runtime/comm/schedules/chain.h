// All-reduce along a chain of ranks, in exactly their order.
//
// A segment starts at the first rank, travels to the last one, gathering what each rank adds, and
// the finished segment travels back. Many segments are under way at once, in both directions. The
// additions happen as ((g0 + g1) + g2) + ..., which is what one process does that accumulates n
// micro-batches: so the result is the same bitwise, for any segment size and any transport.
//
// Each rank in the middle sends and receives 2 S bytes, as in the ring; the ends S each. The chain
// takes 2 (n - 1) segment times longer to fill and drain.
#pragma once

#include <functional>

#include "ddp_runtime/comm/buffer.h"
#include "ddp_runtime/comm/link.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/subgroup.h"

namespace ddp::comm::schedules {

// Given what the ranks before this one have added up, elements [first, first + count) of the
// buffer: puts the sum with this rank's part in place of it in the buffer. `incoming` is nothing on
// the first rank.
using Contribute =
    std::function<void(std::size_t first, std::size_t count, std::span<std::byte> incoming)>;
// Elements [first, first + count) of the buffer are final.
using Finished = std::function<void(std::size_t first, std::size_t count)>;

void all_reduce_chain(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                      Scratch& scratch);

// The same where a rank speaks for several.
void chain(Link& link, const Subgroup& group, Buffer data, Scratch& scratch,
           const Contribute& contribute, const Finished& finished);

}  // namespace ddp::comm::schedules
