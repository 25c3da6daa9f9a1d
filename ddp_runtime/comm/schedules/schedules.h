// The collectives as schedules of point-to-point messages. Each runs on every rank's communication
// thread; all ranks choose the same schedule because the choice depends on size and rank count
// only.
//
//   n ranks, S bytes          steps            bytes each rank sends
//   all_reduce, doubling      log2 n           S log2 n
//   all_reduce, ring          2 (n - 1)        2 S (n - 1) / n       (the least possible)
//   reduce_scatter, ring      n - 1            S (n - 1) / n         (the least possible)
//   all_gather, ring          n - 1            S (n - 1) / n, S the gathered size
//   broadcast, tree           log2 n           at most S log2 n, at the root
//   broadcast, chain          n - 1 + S / seg  S
//   barrier, dissemination    log2 n           log2 n bytes
#pragma once

#include <cstddef>
#include <vector>

#include "ddp_runtime/comm/buffer.h"
#include "ddp_runtime/comm/link.h"
#include "ddp_runtime/comm/team.h"

namespace ddp::comm::schedules {

// Memory for incoming pieces, kept between collectives so that none of them allocates.
using Scratch = std::vector<std::byte>;

// Below this many bytes latency decides, above it bandwidth.
inline constexpr std::size_t kSmallMessage = 32768;

void all_reduce(Link& link, const Team& team, Buffer data, ReduceOp op, Scratch& scratch);
void reduce_scatter(Link& link, const Team& team, Buffer input, Buffer output, ReduceOp op,
                    Scratch& scratch);
void all_gather(Link& link, const Team& team, Buffer input, Buffer output);
void broadcast(Link& link, const Team& team, Buffer data, int root);
void barrier(Link& link, const Team& team);

// The variants, for tests and benchmarks.
void all_reduce_doubling(Link& link, const Team& team, Buffer data, ReduceOp op, Scratch& scratch);
void all_reduce_ring(Link& link, const Team& team, Buffer data, ReduceOp op, Scratch& scratch);
void broadcast_tree(Link& link, const Team& team, Buffer data, int root);
void broadcast_chain(Link& link, const Team& team, Buffer data, int root);

}  // namespace ddp::comm::schedules
