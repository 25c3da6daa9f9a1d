// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/neighbors.h"

#include <fmt/format.h>

#include "ddp_runtime/pipeline/edges.h"

namespace ddp::pipeline {

Neighbors connect_neighbors(comm::Group& pipe, bool ring) {
  Neighbors neighbors;
  for (const auto& channel : channels_of(pipe.size(), ring)) {
    const int pair = pair_of(channel, pipe.rank());
    const bool sends =
        pair >= 0 && channel.pairs[static_cast<std::size_t>(pair)].from == pipe.rank();
    const bool forward = channel.flow == Flow::forward;
    comm::Group* const group =
        pipe.split(pair, sends ? 0 : 1, forward ? "activations" : "gradients");
    if (group == nullptr) continue;
    const Link link{group, 1 - group->rank()};
    if (forward) {
      (sends ? neighbors.activations_out : neighbors.activations_in) = link;
    } else {
      (sends ? neighbors.gradients_out : neighbors.gradients_in) = link;
    }
  }
  return neighbors;
}

}  // namespace ddp::pipeline
