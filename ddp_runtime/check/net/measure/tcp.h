// SPDX-License-Identifier: Apache-2.0
// TCP with a deadline on every call and descriptive errors.
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

// A connection failed to open, closed, or was silent for too long.
class NetError : public RuntimeError {
 public:
  using RuntimeError::RuntimeError;
};

// Listens on all addresses of this machine; port 0 lets the kernel choose one. Throws NetError.
Listener listen_on(std::uint16_t port);

// The next connection, or nullopt if none arrives before the deadline.
std::optional<FileDescriptor> accept_until(const Listener& listener, Deadline deadline);

// The local end of a connection. It is selected by address and not by device: a connection bound to
// a device is reset if another interface on the same wire answers for the address.
struct Origin {
  std::string address = {};  // numeric; empty: chosen by the kernel
};

// Tries all addresses of `host`. Throws NetError with the error of the last address.
FileDescriptor connect_to(const std::string& host, std::uint16_t port, Deadline deadline,
                          const Origin& origin = {});

// Both throw NetError, with the number of bytes transferred, if the peer is gone or the deadline
// passes.
void send_all(int socket, std::span<const std::byte> data, Deadline deadline);
void receive_all(int socket, std::span<std::byte> data, Deadline deadline);

// Numeric address of the local and the remote end of a connection; empty if it has none.
std::string local_address(int socket);
std::string remote_address(int socket);

}  // namespace ddp::check
