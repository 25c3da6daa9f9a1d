// SPDX-License-Identifier: Apache-2.0
// Runs a function once per rank, each rank as a thread of this process with its own Group.
#pragma once

#include <functional>
#include <memory>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/comm/p2p/p2p_group.h"

namespace ddp::comm {

// Returns when all ranks have returned. If one throws, all others fail with PeerFailure at their
// next wait, and the first exception is rethrown here. `node_of`: see make_in_process_transports.
void run_ranks(int ranks, const std::function<void(Group&)>& body, const GroupOptions& options = {},
               const std::function<int(int rank)>& node_of = {});

// With the transports that `make` returns, which each rank calls on its thread.
using MakeTransport =
    std::function<std::unique_ptr<Transport>(int rank, const FailureState& failures)>;
void run_ranks_over(const MakeTransport& make, int ranks, const std::function<void(Group&)>& body,
                    const GroupOptions& options = {});

}  // namespace ddp::comm
