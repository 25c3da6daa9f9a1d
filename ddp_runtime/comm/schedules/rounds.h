// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-gather as lists of rounds: two families of schedules, run by the same
// code.
//
// The data is cut into n chunks. Rank r numbers the chunks starting from its own: block i is chunk
// (r + i) mod n. A reduce-scatter must move every partial sum of block i, i > 0, i ranks ahead, to
// its owner, and add it there. In one round every rank sends the blocks [first, first + count) to
// the rank `skip` ahead of it; they arrive as blocks [first - skip, ...) of that rank, which adds
// them to its own. A list of rounds is a reduce-scatter if each round sends the last remaining
// blocks, until only block 0 is left. Run backward, with the blocks numbered the other way (chunk
// (r - i) mod n) and without additions, the same list is an all-gather.
//
//   ring:     skip 1, one block per round                   n - 1 rounds
//   halving:  the upper half of the remaining blocks, to    ceil(log2 n) rounds
//             the rank that is ahead by the length of the lower half
//
// Both send n - 1 chunks, the least possible. Halving is the reduce-scatter on a circulant graph of
// J. L. Traeff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms" (2024). It works
// for any number of ranks; recursive halving (Rabenseifner) sends twice the bytes if the number is
// not a power of two. The ring's only advantage is that every rank communicates only with its
// neighbors, which helps on a network with oversubscribed uplinks.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/group/cut.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/transport/link.h"

namespace ddp::comm::schedules {

struct Round {
  int skip;   // ranks ahead, 1 to n - 1
  int first;  // block
  int count;  // blocks, 1 to skip
  bool operator==(const Round&) const = default;
};
using Rounds = std::vector<Round>;

// The rounds for n ranks, n >= 1. Empty for one rank.
Rounds ring_rounds(int n);
Rounds halving_rounds(int n);

// Both work in place on `data`, whose chunks begin at `starts`. After reduce_rounds, the chunk at
// this rank's place in the group is complete and the other chunks hold partial sums; gather_rounds
// continues from this state.
void reduce_rounds(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                   const Rounds& rounds, ReduceOp op, Scratch& scratch);
void gather_rounds(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                   const Rounds& rounds);

}  // namespace ddp::comm::schedules
