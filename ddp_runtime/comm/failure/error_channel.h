// How a failure on one rank reaches all ranks within seconds, whatever the data path is doing.
//
// Every rank keeps one TCP connection to rank 0, the hub, beside the data path. A rank that fails
// sends its words; the hub passes the first failure to everybody. A connection that closes without
// a goodbye belongs to a process that was killed, and the hub says so in its place. Ranks that are
// silent, because they are stopped or their machine is gone, are found by heartbeats; see
// liveness.h. When a rank waits too long, the hub asks all of them what they do and names the
// cause; see diagnosis/hang_analysis.h.
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
  // Collective over `group`. Throws PeerFailure on all ranks, that rank included, if one cannot
  // reach rank 0. Ranks may fail as soon as they have a channel: the others still get theirs.
  ErrorChannel(Group& group, FailureState& failures, ChannelOptions options = {});
  ErrorChannel(const ErrorChannel&) = delete;
  ErrorChannel& operator=(const ErrorChannel&) = delete;
  // Says goodbye. Rank 0 waits a few seconds for the goodbyes of the others.
  ~ErrorChannel();

  // The failure that the hub saw first, which is the one worth telling; waits for its ruling.
  // Nothing if rank 0 is gone or silent.
  std::optional<Failure> verdict(std::chrono::milliseconds timeout);
  // On rank 0: whether all other ranks have closed their connections in time. It does not wait for
  // those that were found to be lost. True elsewhere.
  bool wait_for_peer_exit(std::chrono::milliseconds timeout);
  // The rank that speaks where rank 0 is lost: one on another node if there is one.
  int deputy() const noexcept { return deputy_; }

 private:
  std::unique_ptr<ChannelEnd> end_;  // none in a world of one
  int deputy_ = 1;
};

}  // namespace ddp::comm
