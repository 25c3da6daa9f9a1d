// SPDX-License-Identifier: Apache-2.0
// TCP for the error channel: few, small messages, never waiting for a peer that does not read.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/socket.h"
#include "ddp_runtime/comm/failure/wire.h"

namespace ddp::comm {

// What is known of the process at the other end. Only FIN and RST come from the other machine: any
// other error is one of the network, and the process may be well.
enum class StreamState : std::uint8_t { open, ended, broken };
StreamState state_after(int error) noexcept;

class Connection {
 public:
  Connection() = default;
  explicit Connection(FileDescriptor socket);

  // Tries the names and addresses one after the other until one of them accepts within `each`.
  static std::optional<Connection> open(const std::vector<std::string>& hosts, std::uint16_t port,
                                        std::chrono::milliseconds each);

  int fd() const noexcept { return socket_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  StreamState state() const noexcept { return state_; }

  // Sends what the kernel takes at once; the rest goes with later calls and with flush(). Returns
  // false if the connection is over.
  bool send(const Message& message);
  bool flush();
  // See Decoder.
  void accept_at_most(std::size_t text) noexcept { decoder_.accept_at_most(text); }
  // From the next message on, in both directions.
  void seal(const Key& sending, const Key& receiving);
  bool unsent() const noexcept { return !outbox_.empty(); }
  // Waits until all is sent.
  bool flush_within(std::chrono::milliseconds timeout);

  // Reads what is there; returns false if the connection is over.
  bool fill();
  std::optional<Message> next() { return decoder_.next(); }
  // Reads as soon as something is there; false if nothing comes until then or the connection is
  // over.
  bool fill_before(Deadline deadline);
  // Waits for one message.
  std::optional<Message> await(std::chrono::milliseconds timeout);

  // Whether the other kernel has acknowledged all that was sent, or something so recently: it takes
  // its time for an answer.
  bool acknowledged(std::chrono::milliseconds recently) const noexcept;
  // The other end as a number and a port; nullopt if it is not known any more.
  struct Endpoint {
    std::string host;
    std::uint16_t port = 0;
    bool operator==(const Endpoint&) const = default;
  };
  std::optional<Endpoint> peer() const;
  void close() noexcept { socket_.close(); }

 private:
  FileDescriptor socket_;
  Decoder decoder_;
  std::string outbox_;
  std::optional<Seal> seal_;  // of what is sent
  StreamState state_ = StreamState::open;
};

// Listens on a port that the kernel chooses. Throws RuntimeError.
Listener listen_anywhere();
// Listens on this port again, after its listener was closed; nullopt if another process has it now.
std::optional<Listener> listen_again(std::uint16_t port);

// The hosts that are numeric addresses, which need no name lookup.
std::vector<std::string> numeric(const std::vector<std::string>& hosts);

// Under what this machine may be reached, most trusted first: MASTER_ADDR when this is rank 0's
// host, the host name, then the addresses of all interfaces.
std::vector<std::string> own_addresses();

}  // namespace ddp::comm
