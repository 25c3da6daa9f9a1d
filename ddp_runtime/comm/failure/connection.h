// TCP for the error channel: few, small messages; a peer whose machine vanished is noticed within
// half a minute.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/failure/file_descriptor.h"
#include "ddp_runtime/comm/failure/wire.h"

namespace ddp::comm {

class Connection {
 public:
  Connection() = default;
  explicit Connection(FileDescriptor socket);

  // Tries the names and addresses one after the other until one of them accepts within `each`.
  static std::optional<Connection> open(const std::vector<std::string>& hosts, std::uint16_t port,
                                        std::chrono::milliseconds each);

  int fd() const noexcept { return socket_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  // Returns false if the peer is gone.
  bool send(const Message& message);
  // Reads what is there; returns false at the end of the stream.
  bool fill();
  std::optional<Message> next() { return decoder_.next(); }
  // Waits for one message.
  std::optional<Message> await(std::chrono::milliseconds patience);
  void close() noexcept { socket_.close(); }

 private:
  FileDescriptor socket_;
  Decoder decoder_;
};

// A listening socket on a port the kernel chose, on all addresses of this machine.
struct Listener {
  FileDescriptor socket;
  std::uint16_t port = 0;
};
Listener listen_anywhere();

// Under what this machine may be reached, most trusted first: MASTER_ADDR when this is rank 0's
// host, the host name, then the addresses of all interfaces.
std::vector<std::string> own_addresses();

}  // namespace ddp::comm
