// SPDX-License-Identifier: Apache-2.0
// How ranks find each other without MPI: rank 0 listens at the port of the launch plan, the others
// tell it where they listen, and it tells all of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/secret/key.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/transport/tcp/switchboard.h"

namespace ddp::comm {

// Where rank 0 listens, from MASTER_ADDR and MASTER_PORT, and who this process is.
struct TcpPlan {
  std::string leader;
  std::uint16_t port = 0;
  int rank = 0;
  int ranks = 1;
  Key key{};         // which only the ranks know, if the step has a key
  std::string node;  // ranks with the same one share memory; see Transport::node_key()
};

// Where a rank listens: at the address from which it has connected to rank 0, or, if that belongs
// to another network, at one of its other addresses.
struct Place {
  std::vector<std::string> hosts;
  std::uint16_t port = 0;
};
using Directory = std::vector<Place>;  // by rank

// The socket at which this rank listens: rank 0 at the port of the plan. Throws RuntimeError.
Listener listen_for_ranks(const TcpPlan& plan);

// Collective. Returns where each rank listens. Throws RuntimeError if rank 0 cannot be reached or
// is another program, or on rank 0 if ranks are missing after `timeout`; then PeerFailure with the
// same text on the others. Reports to `failures` if the wait is slow, as ranks may start late: rank
// 0 and the first of those that do not reach it say once what they wait for.
Directory meet(Switchboard& switchboard, const TcpPlan& plan, const FailureState& failures,
               std::chrono::milliseconds timeout);

// Ranks of rank 0's machine may have connected to it by an address that means this machine here.
// `leader`: the address at which this rank has reached rank 0.
void correct_loopbacks(Directory& directory, const std::string& leader);

// For the leader's list of 4,000 ranks as messages, and back.
std::string text_of(const Directory& directory);
// Throws RuntimeError.
Directory directory_of(const std::string& text);

}  // namespace ddp::comm
