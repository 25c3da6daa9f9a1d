// SPDX-License-Identifier: Apache-2.0
// Which ranks divide a model among themselves, and which have the same part of it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp {

struct ShardGroups {
  comm::Group& all;               // the ranks that train together
  comm::Group& sharing;           // the ranks that divide
  comm::Group* across = nullptr;  // the ranks with the same part; null if each part is there once
  // Ranks in `all`: those of each node that divide, in the order of their parts.
  std::vector<std::vector<int>> nodes = {};

  static ShardGroups of_all(comm::Group& group);
};

// The ranks of each machine divide. Collective over `group`, whose life the groups have. With
// `ranks` > 0, each `ranks` ranks in a row divide, as if they were a machine. Throws UsageError, on
// all ranks, if machines have different numbers of ranks.
ShardGroups groups_by_machine(comm::Group& group, int ranks);

// Throws UsageError if a machine with these ranks, one of several, has nothing to divide among
// them.
void require_several_ranks(std::span<const int> ranks_of_machine);

// The number of each rank's machine, counted in the order of ranks. Throws UsageError if machines
// have different numbers of ranks. Pure.
std::vector<int> machines_of(std::span<const std::string> keys);

}  // namespace ddp
