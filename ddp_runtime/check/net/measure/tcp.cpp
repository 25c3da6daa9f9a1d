#include "ddp_runtime/check/net/measure/tcp.h"

#include <fmt/format.h>
#include <linux/tcp.h>  // not netinet/: a file compiled together with this one needs it
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "ddp_runtime/check/resolve.h"

namespace ddp::check {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

void set_option(int socket, int level, int name, int value) {
  setsockopt(socket, level, name, &value, sizeof value);  // improvements; none is needed
}

// A machine that vanished without a word is noticed within half a minute.
void keep_alive(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

FileDescriptor bound_socket(int family, std::uint16_t port) {
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
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&any), length) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    socket.close();
  }
  return socket;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

AddressList numeric_address(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), fmt::format("{}", port).c_str(), &hints, &found) != 0) {
    found = nullptr;
  }
  return {found, freeaddrinfo};
}

// False, with errno, if the socket cannot begin there.
bool begin_at(int socket, const Origin& origin) {
  if (origin.address.empty()) return true;
  const AddressList from = numeric_address(origin.address, 0);
  return from && bind(socket, from->ai_addr, from->ai_addrlen) == 0;
}

// One attempt; the reason in `error` if it fails.
FileDescriptor try_connect(const std::string& address, std::uint16_t port, Deadline deadline,
                           const Origin& origin, std::string& error) {
  const AddressList to = numeric_address(address, port);
  if (!to) {
    error = "not an address";
    return {};
  }
  FileDescriptor socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int code = 0;
  if (!socket || !begin_at(socket.get(), origin) ||
      connect(socket.get(), to->ai_addr, to->ai_addrlen) != 0) {
    code = errno;
  }
  if (code == EINPROGRESS) {
    socklen_t length = sizeof code;
    if (!wait_for(socket.get(), POLLOUT, deadline)) {
      code = ETIMEDOUT;
    } else if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &length) != 0) {
      code = errno;
    }
  }
  if (code == 0) return socket;
  error = std::strerror(code);
  return {};
}

std::string progress(std::size_t done, std::size_t all) {
  return fmt::format("after {} of {} bytes", done, all);
}

bool temporary(int code) {
  return code == EAGAIN || code == EINTR;
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text.data(), text.size(),
                  nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view view = text.data();
  return std::string(view.starts_with(kMapped) ? view.substr(kMapped.size()) : view);
}

}  // namespace

bool wait_for(int descriptor, short events, Deadline deadline) {
  while (true) {
    pollfd entry{descriptor, events, 0};
    const int ready = poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

Listener listen_on(std::uint16_t port) {
  FileDescriptor socket = bound_socket(AF_INET6, port);
  if (!socket && errno == EAFNOSUPPORT) socket = bound_socket(AF_INET, port);
  if (!socket) {
    throw NetError(fmt::format("cannot listen on TCP port {}: {}", port, std::strerror(errno)));
  }
  const std::uint16_t chosen = port_of(socket.get());
  return {std::move(socket), chosen};
}

std::optional<FileDescriptor> accept_until(const Listener& listener, Deadline deadline) {
  while (wait_for(listener.socket.get(), POLLIN, deadline)) {
    FileDescriptor socket(
        accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && Clock::now() < deadline) continue;  // it left again before it was accepted
    if (!socket) return std::nullopt;
    keep_alive(socket.get());
    return socket;
  }
  return std::nullopt;
}

FileDescriptor connect_to(const std::string& host, std::uint16_t port, Deadline deadline,
                          const Origin& origin) {
  const Resolution resolution =
      resolve(host, std::chrono::milliseconds(milliseconds_until(deadline)));
  std::string error = resolution.error;
  for (const auto& address : resolution.addresses) {
    FileDescriptor socket = try_connect(address, port, deadline, origin, error);
    if (!socket) continue;
    keep_alive(socket.get());
    return socket;
  }
  throw NetError(fmt::format("cannot connect to {} port {}: {}", host, port, error));
}

void send_all(int socket, std::span<const std::byte> data, Deadline deadline) {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = ::send(socket, data.data() + done, data.size() - done, MSG_NOSIGNAL);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (!temporary(errno)) {
      throw NetError(
          fmt::format("sending failed {}: {}", progress(done, data.size()), std::strerror(errno)));
    } else if (!wait_for(socket, POLLOUT, deadline)) {
      throw NetError(
          fmt::format("the other end took no more data {}", progress(done, data.size())));
    }
  }
}

void receive_all(int socket, std::span<std::byte> data, Deadline deadline) {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = ::recv(socket, data.data() + done, data.size() - done, 0);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0) {
      throw NetError(
          fmt::format("the other end closed the connection {}", progress(done, data.size())));
    } else if (!temporary(errno)) {
      throw NetError(fmt::format("receiving failed {}: {}", progress(done, data.size()),
                                 std::strerror(errno)));
    } else if (!wait_for(socket, POLLIN, deadline)) {
      throw NetError(
          fmt::format("the other end sent no more data {}", progress(done, data.size())));
    }
  }
}

std::string local_address(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return numeric(address, length);
}

std::string remote_address(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return numeric(address, length);
}

}  // namespace ddp::check
