// SPDX-License-Identifier: Apache-2.0
// Sends what one node has in its store to another: lists to rank 0, and shards.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/checkpoint/local/local_adoption.h"
#include "hdf5_ckpt/directory/local_store.h"

namespace ddp::train {

// Collective. On rank 0: what each rank has found, from the `leaders`, one of each node, whose
// lowest is 0; the other ranks have found nothing, and get an empty list.
std::vector<std::vector<FoundShard>> collect_found(comm::Group& group,
                                                   const std::vector<int>& leaders,
                                                   const std::vector<ckpt::LocalShard>& mine);

// A shard arrives with wrong bytes if its file cannot be read: its checksums tell.
void send_shard(comm::Group& group, int to, const ckpt::LocalStore& store,
                const ckpt::LocalShard& shard);

struct ReceivedShard {
  std::optional<ckpt::LocalShard> shard;
  std::string problem;  // why it could not be written; empty if it is in the store
};

ReceivedShard receive_shard(comm::Group& group, int from, ckpt::LocalStore& store);

}  // namespace ddp::train
