// The first messages on a connection of the error channel. Both ends prove that they know the
// job's token (secret/proof.h), which all ranks have been told over the data path and which never
// crosses this connection: a rank that reaches a stranger's port gives nothing away, and a stranger
// who reaches the hub's is not a rank.
//
//   rank -> hub   hello     its nonce, and who it is in words
//   hub  -> rank  welcome   the hub's nonce and proof
//   rank -> hub   hello     the rank's proof
//   hub  -> rank  welcome
//
// Neither class waits: whoever owns the connection hands it the messages that come.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/wire.h"
#include "ddp_runtime/comm/secret/proof.h"

namespace ddp::comm {

// The hub's side of one connection.
class HubGreeting {
 public:
  // What to answer to the next message; nullopt if whoever sent it is not a rank of this job.
  std::optional<Message> answer(const Message& message, const std::string& token);

  // The rest is known when the rank has proved itself.
  bool done() const noexcept { return done_; }
  int rank() const noexcept { return meeting_.rank; }
  const std::string& who() const noexcept { return who_; }

 private:
  Meeting meeting_;
  std::string who_;
  bool asked_ = false;
  bool done_ = false;
};

// The rank's side.
class RankGreeting {
 public:
  RankGreeting(const std::string& token, int rank, std::string who);

  // The first message.
  Message hello() const;
  // What to answer to the next message; nullopt when there is nothing to answer any more: either
  // done(), or whoever sent it is not the hub.
  std::optional<Message> answer(const Message& message);
  bool done() const noexcept { return done_; }

 private:
  Key key_;
  Meeting meeting_;
  std::string who_;
  bool proved_ = false;
  bool done_ = false;
};

// The rank's side for a thread that may wait, each time for `patience`. False if whoever answers is
// not the hub.
bool greet(Connection& connection, RankGreeting greeting, std::chrono::milliseconds patience);

}  // namespace ddp::comm
