// SPDX-License-Identifier: Apache-2.0
// The messages of the error channel: one byte of kind, four of rank, four of length, then text.
// Once both ends have proved themselves (greeting.h), a seal follows each message: an HMAC over the
// message and its number, with a key of the connection and the direction. So no host between the
// two can say, change, repeat or leave out one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ddp_runtime/comm/secret/key.h"

namespace ddp::comm {

enum class MessageKind : std::uint8_t {
  hello = 1,           // of a rank that connects; see greeting.h
  welcome = 2,         // the hub's answers
  failure = 3,         // rank: who failed; text: its words
  goodbye = 4,         // an orderly end; a connection that closes without it has lost its process
  timeout = 5,         // rank: the one that timed out; text: its words. The hub looks for the cause
  slow_wait = 6,       // rank: a waiting rank; text: who waits for what. The wait continues
  status_request = 7,  // the hub asks what the rank is doing
  status = 8,          // the answer: text: a RankSnapshot as JSON
  broken = 9,          // like timeout: a message of the wrong length arrived
  loss = 10,           // like failure, but the text is the hub's: the rank cannot or does not speak
  usage_error = 11,    // like failure, for a UsageError
  alive = 12,          // a heartbeat; rank: 1 if the sender waits and nothing moves, else 0
  hub_lost = 13,       // the sender takes the hub for lost and exits; rank: 1 if the hub's machine
                       // answered, else 0; text: the sender's verdict
};

struct Message {
  MessageKind kind = MessageKind::hello;
  int rank = -1;
  std::string text;  // at most kMaxText bytes; encode() cuts longer ones
};

inline constexpr std::size_t kMaxText = 65536;

std::string encode(const Message& message);
// A seal as bytes, to be sent behind the message. It refers to `seal`.
std::string_view text_of(const Key& seal) noexcept;

// The seals of one direction.
class Seal {
 public:
  explicit Seal(const Key& key) : key_(key) {}
  // Of the next message, as encoded.
  Key next(std::string_view encoded);

 private:
  Key key_;
  std::uint64_t messages_ = 0;
};

// Puts messages together from the bytes of a stream. Throws RuntimeError on bytes that cannot come
// from encode(), or whose seal is wrong, so that a stranger's connection is dropped and never
// buffered without bound.
class Decoder {
 public:
  void append(std::span<const char> bytes);
  std::optional<Message> next();

  // Longer texts are refused, from the next message on.
  void accept_at_most(std::size_t text) noexcept { most_text_ = text; }
  // From the next message on.
  void expect_seals(const Key& key) { seal_.emplace(key); }

 private:
  std::string buffer_;
  std::size_t most_text_ = kMaxText;
  std::optional<Seal> seal_;
};

}  // namespace ddp::comm
