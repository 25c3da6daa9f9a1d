// SPDX-License-Identifier: Apache-2.0
// Which channels the ranks of a pipeline use for the messages between neighbors. Pure.
//
// Note [Channels of a pipeline]
// Edge e of a pipeline connects rank e with rank e + 1, and the last edge the last rank with rank 0
// if ranks have several stages. If all messages of a rank shared one queue, rank 0 could wait with
// an activation for rank 1 to receive it, while rank 1 waits with a gradient for rank 0 to receive
// it: each receive would be queued behind the send. So each direction has channels of its own, and
// the edges of a rank have different ones: edges alternate between two colors, and the last edge of
// an odd ring has a third. Then, on every rank, a channel has the messages of one edge in one
// direction only, and their order is that of the schedule on both ends.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::pipeline {

// forward: activations, to the next stage. backward: gradients, to the previous one.
enum class Flow : std::uint8_t { forward, backward };

struct Pair {
  int edge = 0;
  int from = 0;  // the rank that sends
  int to = 0;

  friend bool operator==(const Pair&, const Pair&) = default;
};

struct PipelineChannel {
  Flow flow = Flow::forward;
  int color = 0;
  std::vector<Pair> pairs;  // a rank is in at most one of them
};

// The channels of `ranks` ranks. `ring`: ranks have several stages.
std::vector<PipelineChannel> channels_of(int ranks, bool ring);

// The place of the pair to which `rank` belongs in channel.pairs; -1 if there is none.
int pair_of(const PipelineChannel& channel, int rank);

}  // namespace ddp::pipeline
