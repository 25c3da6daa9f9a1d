// SPDX-License-Identifier: Apache-2.0
// The collectives as schedules of point-to-point messages. Each runs on every rank's communication
// thread; all ranks choose the same schedule because the choice depends only on the size, the
// number of ranks and the network model, which are the same on all ranks (schedules/choice.h).
//
//   n ranks, S bytes          steps            bytes each rank sends
//   all_reduce, doubling      log2 n           S log2 n
//   all_reduce, halving       2 log2 n         2 S (n - 1) / n       (the least possible)
//   all_reduce, ring          2 (n - 1)        2 S (n - 1) / n       (the least possible)
//   in order, chain           2 (n - 1)        2 S
//   in order, gather          log2 n           S (n - 1)
//   reduce_to_parts, gather_parts: half of all_reduce by halving or ring; S is the whole
//   reduce_to_parts_in_order  n - 1            S (n - 1) / n
//   broadcast, tree           log2 n           at most S log2 n, at the root
//   broadcast, chain          n - 1 + S / seg  S
//   broadcast, scatter        2 log2 n         at most 2 S (n - 1) / n
//   all_to_all, pairwise      n - 1            S (n - 1) / n; S is the whole input
//   barrier, dissemination    log2 n           log2 n bytes
//
// Logarithms are rounded up.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/group/cut.h"
#include "ddp_runtime/comm/group/parts.h"
#include "ddp_runtime/comm/group/subgroup.h"
#include "ddp_runtime/comm/transport/link.h"

namespace ddp::comm::schedules {

// Memory for incoming pieces, reused between collectives to avoid allocations.
using Scratch = std::vector<std::byte>;

struct CostModel;

void all_reduce(Link& link, const Subgroup& group, Buffer data, ReduceOp op, Scratch& scratch,
                const CostModel& model);
// The additions follow rank order, as in schedules/chain.h, so the results of both variants are
// bitwise equal.
void all_reduce_in_order(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                         Scratch& scratch, const CostModel& model);
// In place: this rank's part gets the sums, which have the bits of all_reduce of the same data; the
// other parts are undefined afterwards. See schedules/parts.cpp.
void reduce_to_parts(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                     ReduceOp op, Scratch& scratch, const CostModel& model);
void reduce_to_parts_in_order(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                              ReduceOp op, Scratch& scratch);
// In place: every rank gets the other ranks' parts.
void gather_parts(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                  const CostModel& model);
void broadcast(Link& link, const Subgroup& group, Buffer data, int root, const CostModel& model);
void all_to_all(Link& link, const Subgroup& group, const Parts& parts);
void barrier(Link& link, const Subgroup& group);

// The variants.
void all_reduce_doubling(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                         Scratch& scratch);
void all_reduce_halving(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                        Scratch& scratch);
void all_reduce_ring(Link& link, const Subgroup& group, Buffer data, ReduceOp op, Scratch& scratch);
void all_reduce_gather_in_order(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                                Scratch& scratch);
void broadcast_tree(Link& link, const Subgroup& group, Buffer data, int root);
void broadcast_chain(Link& link, const Subgroup& group, Buffer data, int root);
void broadcast_scatter(Link& link, const Subgroup& group, Buffer data, int root);

}  // namespace ddp::comm::schedules
