// SPDX-License-Identifier: Apache-2.0
// The handshake on a connection of a channel. Both ends prove that they know the channel's
// key (secret/proof.h), which is never sent over the connection. So a rank that connects to another
// program's port reveals no secret, and rank 0 does not accept another program as a rank.
//
//   rank -> hub   hello     the rank's nonce and description
//   hub  -> rank  welcome   the hub's nonce and proof
//   rank -> hub   hello     the rank's proof
//   hub  -> rank  welcome   if accepted; this and all later messages are sealed (wire.h)
//
// Neither class blocks. The owner of the connection passes in the messages as they arrive.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/channel/connection.h"
#include "base/channel/wire.h"
#include "base/secret/key.h"
#include "base/secret/proof.h"

namespace ddp {

// Upper limit on the length of every message before the proofs.
inline constexpr std::size_t kMaxGreeting = 512;

// The keys with which the two ends seal their messages after both have authenticated.
struct SessionKeys {
  Key of_rank{};
  Key of_hub{};
};

// The hub's side of one connection.
class HubGreeting {
 public:
  // Returns the answer to the rank's first message, or nullopt if that message is not a valid
  // hello.
  std::optional<Message> challenge(const Message& hello, const Key& key);
  // Whether this second message proves that the rank knows the key.
  bool accepts(const Message& proof, const Key& key) const;

  bool challenged() const noexcept { return !meeting_.listeners_nonce.empty(); }
  // The rank's own description of itself, which can be trusted only after it has authenticated.
  int rank() const noexcept { return meeting_.rank; }
  const std::string& who() const noexcept { return who_; }
  SessionKeys session(const Key& key) const;

 private:
  Meeting meeting_;
  std::string who_;
};

// The rank's side.
class RankGreeting {
 public:
  enum class State : std::uint8_t {
    asked,     // waiting for the hub's proof
    answered,  // the hub has authenticated; waiting to be accepted
    welcome,
    stranger,  // the other end does not know the key
  };

  RankGreeting(const Key& key, int rank, std::string who);

  // Sends the first message.
  void begin(Connection& connection) const;
  // Processes the messages that have arrived.
  State advance(Connection& connection);

 private:
  bool meet(const Message& message);

  Key key_;
  std::string who_;
  Meeting meeting_;
  State state_ = State::asked;
};

enum class Greeted : std::uint8_t {
  welcome,
  silent,    // no answer in time, or the connection was closed
  stranger,  // the other end does not know the key
};

// The rank's side for a thread that may block. Takes at most `timeout` in total.
Greeted greet(Connection& connection, RankGreeting greeting, std::chrono::milliseconds timeout);

}  // namespace ddp
