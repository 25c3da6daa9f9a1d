// SPDX-License-Identifier: Apache-2.0
// One connection between the leader and a task. Each JSON message is preceded by its length and,
// after both ends have authenticated, carries a proof of its sender and its position.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/secret/key.h"
#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

// Time limit for sending one message.
constexpr std::chrono::seconds kSendTimeout{5};

class ControlChannel {
 public:
  // Larger messages close the connection, which bounds the memory that another program can make
  // this process use.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  explicit ControlChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const noexcept { return socket_.get(); }

  // Sets a smaller limit, for messages of processes that have not authenticated.
  void accept_at_most(std::size_t bytes) noexcept { most_bytes_ = bytes; }

  // Adds proofs from the next message on. Each direction has its own key. Each proof covers the
  // number of the message, so that omitted, repeated and reordered messages are detected.
  void seal(const Key& sending, const Key& receiving);

  // Sends one message. Thread-safe. Throws NetError.
  void send(const nlohmann::json& message, Deadline deadline);

  // Only one thread may receive. Reads the data that has arrived. Returns false at the end of the
  // stream.
  bool fill();
  // Returns the next complete message, with its strings sanitized, or nullopt if there is none yet.
  // Throws NetError if the message is malformed.
  std::optional<nlohmann::json> next();
  // Waits for a message. Returns nullopt if the deadline passes. Throws NetError if the connection
  // is closed.
  std::optional<nlohmann::json> receive(Deadline deadline);

 private:
  FileDescriptor socket_;
  std::mutex sending_;
  std::string buffer_;
  std::size_t most_bytes_ = kMaxBytes;
  struct Seal {
    Key key{};
    std::uint64_t messages = 0;
  };
  std::optional<Seal> sent_;
  std::optional<Seal> received_;
};

}  // namespace ddp::check
