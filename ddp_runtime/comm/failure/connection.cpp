#include "ddp_runtime/comm/failure/connection.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    found = nullptr;
  }
  return {found, freeaddrinfo};
}

bool wait_for(int fd, short events, std::chrono::milliseconds patience) {
  pollfd entry{fd, events, 0};
  return poll(&entry, 1, static_cast<int>(patience.count())) > 0;
}

bool connect_within(int fd, const addrinfo& address, std::chrono::milliseconds patience) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS || !wait_for(fd, POLLOUT, patience)) return false;
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value,
             sizeof value);  // all of them are improvements, none is needed
}

}  // namespace

Connection::Connection(FileDescriptor socket) : socket_(std::move(socket)) {
  set_option(fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd(), IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd(), IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd(), IPPROTO_TCP, TCP_KEEPCNT, 3);
}

std::optional<Connection> Connection::open(const std::vector<std::string>& hosts,
                                           std::uint16_t port, std::chrono::milliseconds each) {
  for (const auto& host : hosts) {
    const AddressList addresses = resolve(host, port);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      FileDescriptor socket(
          ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
      if (socket && connect_within(socket.get(), *a, each)) return Connection(std::move(socket));
    }
  }
  return std::nullopt;
}

bool Connection::send(const Message& message) {
  const std::string bytes = encode(message);
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      if (!wait_for(fd(), POLLOUT, std::chrono::seconds(2))) return false;
    } else if (n < 0 && errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool Connection::fill() {
  std::array<char, 4096> chunk{};
  while (true) {
    const ssize_t n = recv(fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n > 0) {
      decoder_.append({chunk.data(), static_cast<std::size_t>(n)});
      return true;
    }
    if (n < 0 && errno == EINTR) continue;
    return n < 0 && errno == EAGAIN;
  }
}

std::optional<Message> Connection::await(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    if (auto message = next()) return message;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !wait_for(fd(), POLLIN, left) || !fill()) return std::nullopt;
  }
}

Listener listen_anywhere() {
  FileDescriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage any{};
  socklen_t length = sizeof(sockaddr_in6);
  if (socket) {
    set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    any.ss_family = AF_INET6;
  } else {  // a kernel without IPv6
    socket = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    any.ss_family = AF_INET;
    length = sizeof(sockaddr_in);
  }
  if (!socket || bind(socket.get(), reinterpret_cast<sockaddr*>(&any), length) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&any), &length) != 0) {
    throw RuntimeError(
        fmt::format("cannot listen on a TCP port for the error channel: {}", std::strerror(errno)));
  }
  const std::uint16_t port = any.ss_family == AF_INET6
                                 ? reinterpret_cast<sockaddr_in6*>(&any)->sin6_port
                                 : reinterpret_cast<sockaddr_in*>(&any)->sin_port;
  return {std::move(socket), ntohs(port)};
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  if (const char* leader = std::getenv("MASTER_ADDR")) addresses.emplace_back(leader);
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) addresses.emplace_back(name.data());

  ifaddrs* first = nullptr;
  if (getifaddrs(&first) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
      std::array<char, NI_MAXHOST> text{};
      if (getnameinfo(i->ifa_addr, sizeof(sockaddr_in), text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
        addresses.emplace_back(text.data());
      }
    }
  }
  return addresses;
}

}  // namespace ddp::comm
