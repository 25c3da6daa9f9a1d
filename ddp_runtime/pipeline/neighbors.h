// SPDX-License-Identifier: Apache-2.0
// The connections of a rank of a pipeline to the ranks before and after it. See Note [Channels of a
// pipeline].
#pragma once

#include "ddp_runtime/comm/group/group.h"

namespace ddp::pipeline {

// One end of a channel between two ranks.
struct Link {
  comm::Group* group = nullptr;  // of the two ranks; null if there is no such neighbor
  int peer = 0;                  // the other one

  int world_rank() const { return group->world_rank(peer); }
};

struct Neighbors {
  Link activations_in;
  Link activations_out;
  Link gradients_in;
  Link gradients_out;
};

// Collective over `pipe`. `ring`: the last rank is a neighbor of the first one. Each channel is a
// group of its own, because groups on GPUs have an order for all of their messages.
Neighbors connect_neighbors(comm::Group& pipe, bool ring);

}  // namespace ddp::pipeline
