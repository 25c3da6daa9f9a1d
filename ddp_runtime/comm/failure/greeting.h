// The first messages on a connection of the error channel. Both ends prove that they know the
// channel's key (secret/proof.h), which never crosses the connection: a rank that is led to a
// stranger's port gives nothing away, and a stranger who reaches rank 0's is no rank.
//
//   rank -> hub   hello     the rank's nonce, and who it is in words
//   hub  -> rank  welcome   the hub's nonce and proof
//   rank -> hub   hello     the rank's proof
//   hub  -> rank  welcome   if it takes the rank in; this and all that follows is sealed (wire.h)
//
// Neither class waits: whoever owns the connection hands it the messages that come.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/wire.h"
#include "ddp_runtime/comm/secret/key.h"
#include "ddp_runtime/comm/secret/proof.h"

namespace ddp::comm {

// No text before the proofs is longer.
inline constexpr std::size_t kMaxGreeting = 512;

// What the two ends seal what they send with, once both have proved themselves.
struct SessionKeys {
  Key of_rank{};
  Key of_hub{};
};

// The hub's side of one connection.
class HubGreeting {
 public:
  // The answer to the rank's first message; nullopt if that is none.
  std::optional<Message> challenge(const Message& hello, const Key& key);
  // Whether this second message proves that the rank knows the key.
  bool accepts(const Message& proof, const Key& key) const;

  bool challenged() const noexcept { return !meeting_.listeners_nonce.empty(); }
  // What the rank says of itself; true once it has proved itself.
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
    asked,     // the hub is to prove itself
    answered,  // it has; the rank is to be taken in
    welcome,
    stranger,  // whoever answers does not know the key
  };

  RankGreeting(const Key& key, int rank, std::string who);

  // Says the first message.
  void begin(Connection& connection) const;
  // Acts on the messages that are there.
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
  silent,    // nobody answered in time, or the connection was closed
  stranger,  // whoever answered does not know the key
};

// The rank's side for a thread that may wait, at most `timeout` in all.
Greeted greet(Connection& connection, RankGreeting greeting, std::chrono::milliseconds timeout);

}  // namespace ddp::comm
