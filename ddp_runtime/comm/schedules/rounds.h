// Reduce-scatter and all-gather as lists of rounds: two families, one way to run them.
//
// The data is cut into n chunks. Rank r counts the chunks from its own: block i is chunk
// (r + i) mod n. A reduce-scatter must bring every partial sum of block i, i > 0, i ranks further,
// where it belongs, and add it there. In one round of it every rank sends the blocks [first,
// first + count) to the rank `skip` ahead of it; they arrive as blocks [first - skip, ...) of that
// rank, which adds them to its own. A list of rounds is a reduce-scatter if each sends the last
// blocks that are left, until only block 0 is. Backward, with the blocks counted the other way
// (chunk (r - i) mod n) and nothing added, the same list is an all-gather.
//
//   ring:     skip 1, one block a round                     n - 1 rounds
//   halving:  the upper half of what is left, to the rank   ceil(log2 n) rounds
//             as far ahead as the lower half is long
//
// Both send n - 1 chunks, the least possible. Halving is the reduce-scatter on a circulant graph of
// J. L. Traeff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms" (2024): it needs
// no power of two, where recursive halving (Rabenseifner) sends twice the bytes. The ring's only
// virtue is that everybody talks to neighbors, which a network with thin uplinks rewards.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp_runtime/comm/buffer.h"
#include "ddp_runtime/comm/link.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {

struct Round {
  int skip;   // ranks ahead, 1 to n - 1
  int first;  // block
  int count;  // blocks, 1 to skip
  bool operator==(const Round&) const = default;
};
using Rounds = std::vector<Round>;

// For n ranks, n >= 1. Empty for one rank.
Rounds ring_rounds(int n);
Rounds halving_rounds(int n);

// Where each chunk begins, in elements, and one past the end: n + 1 entries. Chunks differ by at
// most one element.
std::vector<std::size_t> even_chunks(std::size_t count, int ranks);

// In place on `data`, whose chunks begin at `starts`. After the first, the chunk at this rank's
// place in the group is complete and the others hold partial sums; the second starts from there.
void reduce_rounds(Link& link, const Subgroup& group, Buffer data,
                   const std::vector<std::size_t>& starts, const Rounds& rounds, ReduceOp op,
                   Scratch& scratch);
void gather_rounds(Link& link, const Subgroup& group, Buffer data,
                   const std::vector<std::size_t>& starts, const Rounds& rounds);

}  // namespace ddp::comm::schedules
