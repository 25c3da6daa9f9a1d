// SPDX-License-Identifier: Apache-2.0
// TCP sockets that never block, and addresses as texts. What fails is said by errno: the callers
// know better what it means for them.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/file_descriptor.h"

namespace ddp {

// A listening socket on all addresses of this machine.
struct Listener {
  FileDescriptor socket;
  std::uint16_t port = 0;
};

// Port 0 lets the kernel choose one. Returns one without a socket, with errno, if that fails.
Listener open_listener(std::uint16_t port);

// What getaddrinfo(3) finds with these flags; null if it finds nothing. May take minutes, except
// with AI_NUMERICHOST.
using AddressList = std::shared_ptr<addrinfo>;
AddressList find_addresses(const std::string& host, std::uint16_t port, int flags);

// A socket for such an address; empty, with errno, if there can be none.
FileDescriptor open_socket(const addrinfo& address);

// Returns 0, or the error.
int connect_within(int socket, const addrinfo& address, Deadline deadline);

// Waits for poll(2) `events`; false when the deadline passes first.
bool wait_for(int descriptor, short events, Deadline deadline);

// For options that are improvements, so that it does not matter if the kernel lacks one.
void set_option(int socket, int level, int name, int value) noexcept;

// An IPv4 or IPv6 address as a number; empty for others, and for null.
std::string numeric_address(const sockaddr* address);
std::uint16_t port_of(const sockaddr_storage& address) noexcept;

}  // namespace ddp
