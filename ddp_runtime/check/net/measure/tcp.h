// SPDX-License-Identifier: Apache-2.0
// TCP with a deadline on everything, and errors that say what happened.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/deadline.h"
#include "base/errors.h"
#include "base/file_descriptor.h"
#include "base/socket.h"

namespace ddp::check {

// A connection that could not be made, ended, or was silent for too long.
class NetError : public RuntimeError {
 public:
  using RuntimeError::RuntimeError;
};

// Listens on all addresses of this machine; port 0 lets the kernel choose one. Throws NetError.
Listener listen_on(std::uint16_t port);

// The next connection, or nothing until the deadline.
std::optional<FileDescriptor> accept_until(const Listener& listener, Deadline deadline);

// Where a connection has to begin. By its address only: bound to a device, a connection would be
// reset where another interface on the same wire answers for the address.
struct Origin {
  std::string address = {};  // numeric; empty leaves it to the kernel
};

// Tries all addresses of `host`. Throws NetError with the reason of the last one.
FileDescriptor connect_to(const std::string& host, std::uint16_t port, Deadline deadline,
                          const Origin& origin = {});

// Throw NetError if the peer is gone or the deadline passes, saying how far it came.
void send_all(int socket, std::span<const std::byte> data, Deadline deadline);
void receive_all(int socket, std::span<std::byte> data, Deadline deadline);

// Numeric address of the near and the far end of a connection; empty if it has none.
std::string local_address(int socket);
std::string remote_address(int socket);

}  // namespace ddp::check
