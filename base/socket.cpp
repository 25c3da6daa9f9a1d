// SPDX-License-Identifier: Apache-2.0
#include "base/socket.h"

#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ddp {
namespace {

FileDescriptor listening_socket(int family, std::uint16_t port) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket;
  sockaddr_storage any{};
  socklen_t length = sizeof(sockaddr_in);
  any.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    reinterpret_cast<sockaddr_in6&>(any).sin6_port = htons(port);
    length = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in&>(any).sin_port = htons(port);
  }
  // Allows listening again on a port that still has connections.
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&any), length) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    socket.close();
  }
  return socket;
}

}  // namespace

Listener open_listener(std::uint16_t port) {
  FileDescriptor socket = listening_socket(AF_INET6, port);
  if (!socket && errno == EAFNOSUPPORT) socket = listening_socket(AF_INET, port);
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (!socket || getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return {};
  }
  return {std::move(socket), port_of(address)};
}

AddressList find_addresses(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return nullptr;
  return {found, freeaddrinfo};
}

FileDescriptor open_socket(const addrinfo& address) {
  return FileDescriptor(::socket(
      address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
}

int connect_within(int socket, const addrinfo& address, Deadline deadline) {
  if (connect(socket, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

bool wait_for(int descriptor, short events, Deadline deadline) {
  while (true) {
    pollfd entry{descriptor, events, 0};
    const int ready = poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

void set_option(int socket, int level, int name, int value) noexcept {
  setsockopt(socket, level, name, &value, sizeof value);
}

std::string numeric_address(const sockaddr* address) {
  sockaddr_in v4{};
  if (address != nullptr && address->sa_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
      v4.sin_family = AF_INET;
      std::memcpy(&v4.sin_addr, &v6->sin6_addr.s6_addr[12], sizeof v4.sin_addr);
      address = reinterpret_cast<const sockaddr*>(&v4);
    }
  }
  socklen_t length = 0;
  if (address != nullptr && address->sa_family == AF_INET) length = sizeof(sockaddr_in);
  if (address != nullptr && address->sa_family == AF_INET6) length = sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  if (length == 0 ||
      getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return text.data();
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::uint16_t port_of(const sockaddr_storage& address) noexcept {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace ddp
