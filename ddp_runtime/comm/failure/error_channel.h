// SPDX-License-Identifier: Apache-2.0
// How a failure on one rank reaches all ranks within seconds, whatever the data path is doing.
//
// Every rank keeps one TCP connection to rank 0, the hub, beside the data path. A rank that fails
// sends its error; the hub passes the first failure on to all ranks. A connection that closes
// without a goodbye belongs to a process that was killed, and the hub reports it on that rank's
// behalf. Ranks that are silent because they are stopped or their machine is gone are found by
// heartbeats; see liveness.h. When a rank waits too long, the hub asks all ranks for their status
// and names the cause; see diagnosis/hang_analysis.h.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/failure_state.h"
#include "ddp_runtime/comm/group.h"

namespace ddp::comm {

class ErrorChannel {
 public:
  // Collective over `group`. Throws PeerFailure on all ranks, including the one at fault, if a rank
  // cannot reach rank 0. A rank may fail as soon as it has its channel: the others still get
  // theirs.
  ErrorChannel(Group& group, FailureState& failures, ChannelOptions options = {});
  ErrorChannel(const ErrorChannel&) = delete;
  ErrorChannel& operator=(const ErrorChannel&) = delete;
  // Says goodbye. Rank 0 waits a few seconds for the goodbyes of the others.
  ~ErrorChannel();

  // The failure that the hub saw first, which is the one to report; waits for the hub's decision.
  // Returns nullopt if rank 0 is gone or silent.
  std::optional<Failure> verdict(std::chrono::milliseconds timeout);
  // On rank 0: returns whether all other ranks closed their connections in time, without waiting
  // for ranks already found to be lost. Returns true on other ranks.
  bool wait_for_peer_exit(std::chrono::milliseconds timeout);
  // The rank that reports a failure if rank 0 is lost: one on another node if there is one.
  int deputy() const noexcept { return deputy_; }

 private:
  std::unique_ptr<ChannelEnd> end_;  // null if the world has one rank
  int deputy_ = 1;
};

}  // namespace ddp::comm
