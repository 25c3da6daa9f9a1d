// The messages of the error channel: one byte of kind, four of rank, four of length, then text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::comm {

enum class MessageKind : std::uint8_t {
  hello = 1,      // text: the job's token, a space, and who speaks ("node2, process 4711")
  welcome = 2,    // the hub's answer to the right token
  failure = 3,    // rank: who failed; text: its words
  goodbye = 4,    // an orderly end; a connection that closes without it has lost its process
  timeout = 5,    // rank: who waited in vain; text: its words. The hub looks for the cause
  suspicion = 6,  // likewise, but the wait goes on
  question = 7,   // the hub asks what the rank is doing
  account = 8,    // the answer: text: an Activity as JSON
  broken = 9,     // like timeout: a message of the wrong length arrived
  loss = 10,      // like failure, but the text is the hub's: the rank cannot or does not speak
  mistake = 11,   // like failure, and it is the user's
  alive = 12,     // a heartbeat; rank: 1 if the sender waits and nothing moves, else 0
};

struct Message {
  MessageKind kind = MessageKind::hello;
  int rank = -1;
  std::string text;  // at most kMaxText bytes; encode() cuts longer ones
};

inline constexpr std::size_t kMaxText = 65536;

std::string encode(const Message& message);

// Puts messages together from the bytes of a stream. Throws RuntimeError on bytes that cannot come
// from encode(), so that a stranger's connection is dropped and never buffered without bound.
class Decoder {
 public:
  void append(std::span<const char> bytes);
  std::optional<Message> next();

 private:
  std::string buffer_;
};

}  // namespace ddp::comm
