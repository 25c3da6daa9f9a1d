// SPDX-License-Identifier: Apache-2.0
// One connection between the leader and a task: JSON messages, each preceded by its length and,
// once both ends have authenticated, with a proof that it comes from the other end, in order.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/comm/secret/key.h"

namespace ddp::check {

// Time limit for sending one message.
constexpr std::chrono::seconds kSendTimeout{5};

class ControlChannel {
 public:
  // Larger messages close the connection, so that a stranger cannot make us buffer without bound.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  explicit ControlChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const noexcept { return socket_.get(); }

  // Messages larger than this close the connection: messages of strangers must be small.
  void accept_at_most(std::size_t bytes) noexcept { most_bytes_ = bytes; }

  // Applies from the next message on. Each direction has its own key; the number of the message is
  // part of its proof, so that none can be left out, repeated or reordered.
  void seal(const comm::Key& sending, const comm::Key& receiving);

  // Sends whole messages, from any thread. Throws NetError.
  void send(const nlohmann::json& message, Deadline deadline);

  // Only one thread may receive. Reads the data that has arrived; returns false at the end of the
  // stream.
  bool fill();
  // The next complete message, with printable texts only, or nullopt if there is none yet. Throws
  // NetError if the bytes are not a message.
  std::optional<nlohmann::json> next();
  // Waits for a message: nullopt if the deadline passes, NetError if the connection is closed.
  std::optional<nlohmann::json> receive(Deadline deadline);

 private:
  FileDescriptor socket_;
  std::mutex sending_;
  std::string buffer_;
  std::size_t most_bytes_ = kMaxBytes;
  struct Seal {
    comm::Key key{};
    std::uint64_t messages = 0;
  };
  std::optional<Seal> sent_;
  std::optional<Seal> received_;
};

}  // namespace ddp::check
