// SPDX-License-Identifier: Apache-2.0
// The error channel reports a failure of one rank to all ranks within seconds, even if the data
// path is blocked.
//
// Every rank keeps one TCP connection to rank 0, the hub, separate from the data path. A rank that
// fails sends its error; the hub passes the first failure on to all ranks. A connection that closes
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
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/group/group.h"

namespace ddp::comm {

class ErrorChannel {
 public:
  // Collective over `group`. Throws PeerFailure on all ranks, including the one at fault, if a rank
  // cannot reach rank 0. If a rank fails after its channel is set up, the others still get their
  // channels.
  ErrorChannel(Group& group, FailureState& failures, ChannelOptions options = {});
  ErrorChannel(const ErrorChannel&) = delete;
  ErrorChannel& operator=(const ErrorChannel&) = delete;
  // Sends a goodbye. Rank 0 waits a few seconds for the goodbyes of the other ranks.
  ~ErrorChannel();

  // Waits for the hub's verdict and returns it: the failure that the hub saw first, which all ranks
  // report. Returns nullopt if rank 0 is gone or silent.
  std::optional<Failure> verdict(std::chrono::milliseconds timeout);
  // On rank 0, returns whether all other ranks closed their connections in time. Does not wait for
  // ranks already found to be lost, but for the record of the failure, because the caller may end
  // the job next. On other ranks, returns true.
  bool wait_for_peer_exit(std::chrono::milliseconds timeout);
  // The rank that reports a failure if rank 0 is lost: a rank on another node, if there is one.
  int deputy() const noexcept { return deputy_; }

 private:
  std::unique_ptr<ChannelEnd> end_;  // null if the world has one rank
  int deputy_ = 1;
};

}  // namespace ddp::comm
