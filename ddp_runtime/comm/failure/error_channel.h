// How a failure on one rank reaches all ranks within seconds, whatever the data path is doing.
//
// Every rank keeps one TCP connection to rank 0, the hub, beside the data path. A rank that fails
// sends its words; the hub passes the first failure to everybody. A connection that closes without
// a goodbye belongs to a process that was killed, and the hub says so in its place. When a rank
// waits too long, the hub asks all of them what they do and names the cause; see
// diagnosis/inquest.h. Nothing is sent in normal operation and nobody polls: the threads sleep in
// poll(2).
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
  // `dump`: on rank 0, a file for the record of a failure; empty for none.
  ErrorChannel(Group& group, FailureState& failures, std::string dump = {});
  ErrorChannel(const ErrorChannel&) = delete;
  ErrorChannel& operator=(const ErrorChannel&) = delete;
  // Says goodbye. Rank 0 waits a few seconds for the goodbyes of the others.
  ~ErrorChannel();

  // The failure that the hub saw first, which is the one worth telling; waits for its ruling.
  // Nothing if rank 0 is gone or silent.
  std::optional<Failure> verdict(std::chrono::milliseconds patience);
  // On rank 0: whether all other ranks have closed their connections in time. True elsewhere.
  bool others_gone(std::chrono::milliseconds patience);

 private:
  std::unique_ptr<ChannelEnd> end_;  // none in a world of one
};

}  // namespace ddp::comm
