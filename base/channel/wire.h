// SPDX-License-Identifier: Apache-2.0
// The messages of a channel: one byte of kind, four of rank, four of length, then text.
// After both ends have authenticated (greeting.h), a seal follows each message: an HMAC over the
// message and its number, with a separate key for each connection and direction. So no host between
// the two ends can insert, change, repeat or remove a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/secret/key.h"

namespace ddp {

enum class MessageKind : std::uint8_t {
  hello = 1,      // from a rank that connects; see greeting.h
  welcome = 2,    // the hub's answers
  failure = 3,    // rank: the failed rank; text: its error message
  goodbye = 4,    // orderly exit; a connection that closes without it belongs to a lost process
  timeout = 5,    // rank: the rank that timed out; text: its message. The hub finds the cause
  slow_wait = 6,  // rank: a waiting rank; text: its report. The wait continues
  status_request = 7,  // the hub requests the rank's status
  status = 8,          // the answer to status_request; text: a RankSnapshot as JSON
  broken = 9,          // like timeout: a message of the wrong length arrived
  loss = 10,           // like failure, but the hub wrote the text because the rank is lost
  usage_error = 11,    // like failure, for a UsageError
  alive = 12,          // a heartbeat; rank: 1 if the sender waits without progress, else 0
  hub_lost = 13,       // the sender considers the hub lost and exits; rank: 1 if the hub's machine
                       // answered, else 0; text: the sender's verdict
  remote_error = 14,   // like timeout: the sender's library reports that another process ended
  directory = 15,      // a part of the list of all ranks' addresses; see tcp/rendezvous.h
  last = directory,
};

struct Message {
  MessageKind kind = MessageKind::hello;
  int rank = -1;
  std::string text;  // at most kMaxText bytes; encode() truncates longer texts
};

inline constexpr std::size_t kMaxText = 65536;

std::string encode(const Message& message);
// The bytes of a seal, which are sent after the message. The result refers to `seal`.
std::string_view text_of(const Key& seal) noexcept;

// Computes the seals of one direction.
class Seal {
 public:
  explicit Seal(const Key& key) : key_(key) {}
  // Returns the seal of the next message, given its encoding.
  Key next(std::string_view encoded);

 private:
  Key key_;
  std::uint64_t messages_ = 0;
};

// Assembles messages from the bytes of a stream. Throws RuntimeError on bytes that encode() cannot
// produce or a wrong seal, so that the connection of another program is closed and never buffered
// without bound.
class Decoder {
 public:
  void append(std::span<const char> bytes);
  std::optional<Message> next();
  // The bytes that are no message yet.
  std::string take_rest() { return std::exchange(buffer_, {}); }

  // Rejects longer texts, from the next message on.
  void accept_at_most(std::size_t text) noexcept { most_text_ = text; }
  // Expects a seal after each message, from the next message on.
  void expect_seals(const Key& key) { seal_.emplace(key); }

 private:
  std::string buffer_;
  std::size_t most_text_ = kMaxText;
  std::optional<Seal> seal_;
};

}  // namespace ddp
