// SPDX-License-Identifier: Apache-2.0
// Non-blocking TCP sockets, and addresses as text. Functions report errors through errno, because
// only the caller knows which exception an error should become.
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

// Port 0 lets the kernel choose a port. Returns a Listener without a socket and sets errno on
// failure.
Listener open_listener(std::uint16_t port);

// Returns the addresses that getaddrinfo(3) finds with these flags; null if there are none. May
// take minutes, except with AI_NUMERICHOST.
using AddressList = std::shared_ptr<addrinfo>;
AddressList find_addresses(const std::string& host, std::uint16_t port, int flags);

// Opens a socket for this address family. Returns an empty descriptor and sets errno on failure.
FileDescriptor open_socket(const addrinfo& address);

// Returns 0, or the error as an errno value.
int connect_within(int socket, const addrinfo& address, Deadline deadline);

// Waits for poll(2) `events`. Returns false if the deadline passes first.
bool wait_for(int descriptor, short events, Deadline deadline);

// Ignores errors, because it is meant for optional improvements that the kernel may not support.
void set_option(int socket, int level, int name, int value) noexcept;

// An IPv4 or IPv6 address in numeric form; empty for other families and for null.
// One of IPv4 that a socket for both families has written for IPv6 is given as IPv4.
std::string numeric_address(const sockaddr* address);
// Whether a numeric address is in 127.0.0.0/8 or ::1.
bool is_loopback(const std::string& address);
std::uint16_t port_of(const sockaddr_storage& address) noexcept;

}  // namespace ddp
