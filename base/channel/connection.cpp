// SPDX-License-Identifier: Apache-2.0
#include "base/channel/connection.h"

#include <ifaddrs.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iterator>
#include <memory>
#include <thread>

#include "base/errors.h"
#include "base/host.h"

namespace ddp {
namespace {

constexpr auto kResolveWithin = std::chrono::seconds(10);
// Limit on the unsent data for a peer that does not read.
constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;

// Runs the lookup on a separate thread. If the name server does not answer, the lookup takes
// minutes and cannot be interrupted.
AddressList resolve(const std::string& host, std::uint16_t port) {
  if (auto number = find_addresses(host, port, AI_NUMERICHOST)) return number;
  std::packaged_task<AddressList()> task([host, port] { return find_addresses(host, port, 0); });
  auto answer = task.get_future();
  std::thread(std::move(task)).detach();
  if (answer.wait_for(kResolveWithin) != std::future_status::ready) return nullptr;
  return answer.get();
}

// While no process listens at a port of this machine from which the kernel also takes those of
// outgoing connections, a connection to it may get this very port, and then connects to itself.
bool connected_to_itself(int socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof own;
  socklen_t peer_length = sizeof peer;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_length) != 0 ||
      getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) {
    return false;
  }
  if (own_length != peer_length || std::memcmp(&own, &peer, own_length) != 0) return false;
  const linger reset{1, 0};  // leaves the port free
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  return true;
}

}  // namespace

std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> addresses;
  const AddressList list = resolve(host, 0);
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    addresses.push_back(numeric_address(a->ai_addr));
  }
  return addresses;
}

StreamState state_after(int error) noexcept {
  switch (error) {
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENOBUFS:
    case ENOMEM:
      return StreamState::broken;
    default:
      return StreamState::ended;
  }
}

Connection::Connection(FileDescriptor socket) : socket_(std::move(socket)) {
  set_option(fd(), IPPROTO_TCP, TCP_NODELAY, 1);
}

std::optional<Connection> Connection::open(const std::vector<std::string>& hosts,
                                           std::uint16_t port, std::chrono::milliseconds each) {
  for (const auto& host : hosts) {
    const AddressList addresses = resolve(host, port);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      FileDescriptor socket = open_socket(*a);
      if (socket && connect_within(socket.get(), *a, Clock::now() + each) == 0 &&
          !connected_to_itself(socket.get())) {
        return Connection(std::move(socket));
      }
    }
  }
  return std::nullopt;
}

bool Connection::send(const Message& message) {
  if (outbox_.size() > kMaxUnsent) return state_ == StreamState::open;
  const std::string encoded = encode(message);
  outbox_ += encoded;
  if (seal_) outbox_ += text_of(seal_->next(encoded));
  return flush();
}

void Connection::seal(const Key& sending, const Key& receiving) {
  seal_.emplace(sending);
  decoder_.expect_seals(receiving);
  decoder_.accept_at_most(kMaxText);
}

bool Connection::flush() {
  while (!outbox_.empty() && state_ == StreamState::open) {
    const ssize_t n = ::send(fd(), outbox_.data(), outbox_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      outbox_.erase(0, static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      // Only fill() reports the end of the connection, because the peer's last messages may still
      // have to be read.
      outbox_.clear();
      if (state_after(errno) == StreamState::broken) state_ = StreamState::broken;
      return false;
    }
  }
  return state_ == StreamState::open;
}

bool Connection::flush_within(std::chrono::milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  while (flush() && unsent()) {
    if (Clock::now() >= deadline || !wait_for(fd(), POLLOUT, deadline)) return false;
  }
  return state_ == StreamState::open;
}

bool Connection::fill() {
  if (state_ != StreamState::open) return false;
  std::array<char, 16384> chunk;
  while (true) {
    const ssize_t n = recv(fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n > 0) {
      decoder_.append({chunk.data(), static_cast<std::size_t>(n)});
      return true;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    state_ = n == 0 ? StreamState::ended : state_after(errno);
    return false;
  }
}

bool Connection::fill_before(Deadline deadline) {
  return Clock::now() < deadline && wait_for(fd(), POLLIN, deadline) && fill();
}

std::optional<Message> Connection::await(std::chrono::milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  while (true) {
    if (auto message = next()) return message;
    if (!fill_before(deadline)) return std::nullopt;
  }
}

bool Connection::acknowledged(std::chrono::milliseconds recently) const noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (state_ != StreamState::open || unsent() ||
      getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      info.tcpi_state != TCP_ESTABLISHED) {
    return false;
  }
  return info.tcpi_unacked == 0 || std::chrono::milliseconds(info.tcpi_last_ack_recv) < recently;
}

bool Connection::unacknowledged_for(std::chrono::milliseconds time) const noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  int queued = 0;
  if (getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      ioctl(fd(), SIOCOUTQ, &queued) != 0) {
    return true;
  }
  return (queued > 0 || unsent()) && std::chrono::milliseconds(info.tcpi_last_ack_recv) >= time;
}

std::optional<Connection::Endpoint> Connection::peer() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  std::string host = numeric_address(reinterpret_cast<const sockaddr*>(&address));
  if (host.empty()) return std::nullopt;
  return Endpoint{std::move(host), port_of(address)};
}

Listener listen_anywhere() {
  Listener listener = open_listener(0);
  if (!listener.socket) {
    throw RuntimeError(std::string("cannot listen on a TCP port: ") + std::strerror(errno));
  }
  return listener;
}

std::optional<Listener> listen_again(std::uint16_t port) {
  Listener listener = open_listener(port);
  if (!listener.socket) return std::nullopt;
  return listener;
}

std::vector<std::string> numeric(const std::vector<std::string>& hosts) {
  std::vector<std::string> numbers;
  std::copy_if(
      hosts.begin(), hosts.end(), std::back_inserter(numbers),
      [](const std::string& host) { return find_addresses(host, 0, AI_NUMERICHOST) != nullptr; });
  return numbers;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  const auto add = [&](const std::string& address) {
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  };
  if (const char* leader = std::getenv("MASTER_ADDR")) add(leader);
  add(host_name());

  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
      const std::string number = numeric_address(i->ifa_addr);
      // An address with a zone (fe80::1%eth0) is valid only on this machine.
      if (!number.empty() && number.find('%') == std::string::npos) add(number);
    }
  }
  return addresses;
}

}  // namespace ddp
