// The ring that reduce-scatter, all-gather and all-reduce share.
//
// The data is cut into n chunks. In step s of the reduce phase rank r sends chunk r - s - 1 to its
// right neighbour and adds what arrives from the left to chunk r - s - 2 (all modulo n): the chunk
// that leaves rank r in step s is the one it completed adding to in step s - 1. After n - 1 steps
// rank r holds chunk r with the contributions of all ranks. In step s of the gather phase rank r
// sends chunk r - s, which is complete, and receives chunk r - s - 1.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp_runtime/comm/buffer.h"
#include "ddp_runtime/comm/link.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {

// Where each rank's chunk begins, in elements, and one past the end: n + 1 entries. Chunks differ
// by at most one element.
std::vector<std::size_t> even_chunks(std::size_t count, int ranks);

// Both work in place on `data`, whose chunks begin at `starts`.
void ring_reduce(Link& link, const Team& team, Buffer data, const std::vector<std::size_t>& starts,
                 ReduceOp op, Scratch& scratch);
void ring_gather(Link& link, const Team& team, Buffer data, const std::vector<std::size_t>& starts);

}  // namespace ddp::comm::schedules
