// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/tcp.h"

#include <fmt/format.h>
#include <linux/tcp.h>  // not netinet/tcp.h, because pair_links.cpp needs this one in unity builds
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "ddp_runtime/check/findings/resolve.h"

namespace ddp::check {
namespace {

// Detects a vanished machine within half a minute.
void keep_alive(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Binds the socket to the origin. Returns false and sets errno on failure.
bool begin_at(int socket, const Origin& origin) {
  if (origin.address.empty()) return true;
  const AddressList from = find_addresses(origin.address, 0, AI_NUMERICHOST | AI_NUMERICSERV);
  return from && bind(socket, from->ai_addr, from->ai_addrlen) == 0;
}

// Makes one attempt, and stores the reason in `error` if it fails.
FileDescriptor try_connect(const std::string& address, std::uint16_t port, Deadline deadline,
                           const Origin& origin, std::string& error) {
  const AddressList to = find_addresses(address, port, AI_NUMERICHOST | AI_NUMERICSERV);
  if (!to) {
    error = "not an address";
    return {};
  }
  FileDescriptor socket = open_socket(*to);
  const bool begins = socket && begin_at(socket.get(), origin);
  const int code = begins ? connect_within(socket.get(), *to, deadline) : errno;
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

// What the other end did when its time was over: nothing any more, or too little.
class TcpPace {
 public:
  void moved() { moved_ = Clock::now(); }
  std::string late(std::string_view verb, std::size_t done, std::size_t all) const {
    const auto now = Clock::now();
    if (now - moved_ > (now - begun_) / 4) {
      return fmt::format("the other end {} no more data {}", verb, progress(done, all));
    }
    return fmt::format("the other end was too slow: it {} {} of {} bytes in {:.1f} s", verb, done,
                       all, std::chrono::duration<double>(now - begun_).count());
  }

 private:
  Clock::time_point begun_ = Clock::now();
  Clock::time_point moved_ = begun_;
};

}  // namespace

Listener listen_on(std::uint16_t port) {
  Listener listener = open_listener(port);
  if (!listener.socket) {
    throw NetError(fmt::format("cannot listen on TCP port {}: {}", port, std::strerror(errno)));
  }
  return listener;
}

std::optional<FileDescriptor> accept_until(const Listener& listener, Deadline deadline) {
  while (wait_for(listener.socket.get(), POLLIN, deadline)) {
    FileDescriptor socket(
        accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && Clock::now() < deadline)
      continue;  // the caller disconnected before it was accepted
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
  TcpPace pace;
  while (done < data.size()) {
    const ssize_t n = ::send(socket, data.data() + done, data.size() - done, MSG_NOSIGNAL);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      pace.moved();
    } else if (!temporary(errno)) {
      throw NetError(
          fmt::format("sending failed {}: {}", progress(done, data.size()), std::strerror(errno)));
    } else if (!wait_for(socket, POLLOUT, deadline)) {
      throw NetError(pace.late("took", done, data.size()));
    }
  }
}

void receive_all(int socket, std::span<std::byte> data, Deadline deadline) {
  std::size_t done = 0;
  TcpPace pace;
  while (done < data.size()) {
    const ssize_t n = ::recv(socket, data.data() + done, data.size() - done, 0);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
      pace.moved();
    } else if (n == 0) {
      throw NetError(
          fmt::format("the other end closed the connection {}", progress(done, data.size())));
    } else if (!temporary(errno)) {
      throw NetError(fmt::format("receiving failed {}: {}", progress(done, data.size()),
                                 std::strerror(errno)));
    } else if (!wait_for(socket, POLLIN, deadline)) {
      throw NetError(pace.late("sent", done, data.size()));
    }
  }
}

std::string local_address(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return numeric_address(reinterpret_cast<const sockaddr*>(&address));
}

std::string remote_address(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return numeric_address(reinterpret_cast<const sockaddr*>(&address));
}

}  // namespace ddp::check
