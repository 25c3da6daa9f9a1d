// One connection between the leader and a task: JSON messages, each behind its length.
#pragma once

#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

// How long one message may take to leave.
constexpr std::chrono::seconds kSendPatience{5};

class ControlChannel {
 public:
  // Larger messages end the connection, so that a stranger cannot make us buffer without bound.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  explicit ControlChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const noexcept { return socket_.get(); }

  // Whole messages, whichever thread sends them. Throws NetError.
  void send(const nlohmann::json& message, Deadline deadline);

  // One thread receives. Reads what has arrived; false at the end of the stream.
  bool fill();
  // The next complete message. Throws NetError for bytes that are none.
  std::optional<nlohmann::json> next();
  // Waits for a message: nothing when the deadline passes, NetError when the connection ends.
  std::optional<nlohmann::json> receive(Deadline deadline);

 private:
  FileDescriptor socket_;
  std::mutex sending_;
  std::string buffer_;
};

}  // namespace ddp::check
