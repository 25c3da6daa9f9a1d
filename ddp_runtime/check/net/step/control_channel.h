// One connection between the leader and a task: JSON messages, each behind its length, and once
// both ends have proved themselves each with a proof that it comes from the other end, in order.
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

// How long one message may take to leave.
constexpr std::chrono::seconds kSendTimeout{5};

class ControlChannel {
 public:
  // Larger messages end the connection, so that a stranger cannot make us buffer without bound.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  explicit ControlChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const noexcept { return socket_.get(); }

  // Messages larger than this end the connection: strangers say little.
  void accept_at_most(std::size_t bytes) noexcept { most_bytes_ = bytes; }

  // From the next message on. Each direction has a key of its own; the number of the message goes
  // into its proof, so that none can be left out, repeated or moved.
  void seal(const comm::Key& sending, const comm::Key& receiving);

  // Whole messages, whichever thread sends them. Throws NetError.
  void send(const nlohmann::json& message, Deadline deadline);

  // One thread receives. Reads what has arrived; false at the end of the stream.
  bool fill();
  // The next complete message, all its texts printable. Throws NetError for bytes that are none.
  std::optional<nlohmann::json> next();
  // Waits for a message: nothing when the deadline passes, NetError when the connection ends.
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
