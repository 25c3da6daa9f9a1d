// SPDX-License-Identifier: Apache-2.0
// TCP connections of a channel: a few small messages, and no waiting for a peer that does
// not read.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/channel/wire.h"
#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/socket.h"

namespace ddp {

// State of the connection. `ended`: the other machine sent FIN or RST, so the process has exited.
// `broken`: any other error comes from the network, and the process may still be running.
enum class StreamState : std::uint8_t { open, ended, broken };
StreamState state_after(int error) noexcept;

class Connection {
 public:
  Connection() = default;
  explicit Connection(FileDescriptor socket);

  // Tries the names and addresses in turn, each for at most `each`, until one accepts.
  static std::optional<Connection> open(const std::vector<std::string>& hosts, std::uint16_t port,
                                        std::chrono::milliseconds each);

  int fd() const noexcept { return socket_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  StreamState state() const noexcept { return state_; }

  // Sends as much as the kernel accepts immediately; later calls and flush() send the rest. Returns
  // false if the connection has closed.
  bool send(const Message& message);
  bool flush();
  // See Decoder.
  void accept_at_most(std::size_t text) noexcept { decoder_.accept_at_most(text); }
  // Seals all further messages in both directions.
  void seal(const Key& sending, const Key& receiving);
  bool unsent() const noexcept { return !outbox_.empty(); }
  // Waits until everything is sent.
  bool flush_within(std::chrono::milliseconds timeout);

  // Reads the data that has arrived. Returns false if the connection has closed.
  bool fill();
  std::optional<Message> next() { return decoder_.next(); }
  // Waits for data and reads it. Returns false if no data arrives before the deadline, or if the
  // connection has closed.
  bool fill_before(Deadline deadline);
  // Waits for the next message.
  std::optional<Message> await(std::chrono::milliseconds timeout);

  // Whether the other kernel has acknowledged all data, or has acknowledged some data within
  // `recently`, because an acknowledgment takes time to arrive.
  bool acknowledged(std::chrono::milliseconds recently) const noexcept;
  // Whether data waits for an acknowledgment, sent or not, and none has come for this long. Also
  // true if this machine's own link is down, which sends nothing.
  bool unacknowledged_for(std::chrono::milliseconds time) const noexcept;
  // Numeric address and port of the other end; nullopt if they are no longer known.
  struct Endpoint {
    std::string host;
    std::uint16_t port = 0;
    bool operator==(const Endpoint&) const = default;
  };
  std::optional<Endpoint> peer() const;
  // Gives the socket away, with the bytes that have arrived behind the last message.
  struct Released {
    FileDescriptor socket;
    std::string received;
  };
  Released release() { return {std::move(socket_), decoder_.take_rest()}; }
  void close() noexcept { socket_.close(); }

 private:
  FileDescriptor socket_;
  Decoder decoder_;
  std::string outbox_;
  std::optional<Seal> seal_;  // for outgoing messages
  StreamState state_ = StreamState::open;
};

// Listens on a port that the kernel chooses. Throws RuntimeError.
Listener listen_anywhere();
// Listens on this port again after its listener was closed. Returns nullopt if another process uses
// the port now.
std::optional<Listener> listen_again(std::uint16_t port);

// Returns the hosts that are numeric addresses and do not need a name lookup.
std::vector<std::string> numeric(const std::vector<std::string>& hosts);

// The names and addresses of this machine, most trusted first: MASTER_ADDR if it is rank 0's host,
// the host name, then the addresses of all interfaces.
std::vector<std::string> own_addresses();
// The numeric addresses of a name on this machine; empty if it is unknown. Takes 10 s at most.
std::vector<std::string> addresses_of(const std::string& host);

}  // namespace ddp
