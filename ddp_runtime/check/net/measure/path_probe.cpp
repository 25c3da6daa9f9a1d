// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/path_probe.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

namespace ddp::check {
namespace {

constexpr int kHeaders = 28;          // IPv4 and UDP
constexpr int kHeaders6 = 48;         // IPv6 and UDP
constexpr int kMaxDatagram = 65'507;  // the largest UDP payload
constexpr int kCopies = 3;
// Common MTUs: the IPv6 minimum, tunnels, Ethernet, InfiniBand, jumbo frames.
constexpr std::array kSizes{1280, 1400, 1500, 2044, 4092, 9000};

// The beginning of each datagram.
struct ProbeHeader {
  std::uint64_t token = 0;
  std::int32_t bytes = 0;  // size of the packet
  std::int32_t mtu = 0;    // of the sender's interface
};

std::size_t payload_of(int mtu, int headers) {
  return static_cast<std::size_t>(
      std::clamp(mtu - headers, int{sizeof(ProbeHeader)}, kMaxDatagram));
}

std::set<int> sizes_up_to(int mtu) {
  std::set<int> sizes{mtu};
  for (const int size : kSizes) {
    if (size < mtu) sizes.insert(size);
  }
  return sizes;
}

std::uint16_t bind_any(int socket, int family) {
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (bind(socket, reinterpret_cast<sockaddr*>(&any), length) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&any), &length) != 0) {
    throw NetError(fmt::format("cannot bind a UDP port: {}", std::strerror(errno)));
  }
  return ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(any).sin6_port
                                  : reinterpret_cast<sockaddr_in&>(any).sin_port);
}

bool is_ipv6(const addrinfo& address) {
  if (address.ai_family != AF_INET6) return false;
  sockaddr_in6 six{};
  std::memcpy(&six, address.ai_addr, std::min<std::size_t>(address.ai_addrlen, sizeof six));
  return !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
}

}  // namespace

PathProbe::PathProbe() : socket_(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  int family = AF_INET6;
  if (!socket_) {
    family = AF_INET;
    socket_ = FileDescriptor(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  }
  if (!socket_) throw NetError(fmt::format("cannot open a UDP socket: {}", std::strerror(errno)));
  const int off = 0;
  if (family == AF_INET6) {
    setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  // Forbids fragmentation and ignores the path MTU that the kernel has learned.
  const int probe = IP_PMTUDISC_PROBE;
  setsockopt(socket_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
  setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof probe);
  port_ = bind_any(socket_.get(), family);
}

void PathProbe::send(const std::string& host, std::uint16_t port, int mtu, int largest,
                     std::uint64_t token) const {
  int family = 0;
  socklen_t size = sizeof family;
  getsockopt(socket_.get(), SOL_SOCKET, SO_DOMAIN, &family, &size);
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | (family == AF_INET6 ? AI_V4MAPPED : 0);
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found) != 0) return;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const int headers = is_ipv6(*found) ? kHeaders6 : kHeaders;
  for (int copy = 0; copy < kCopies; ++copy) {
    for (const int bytes : sizes_up_to(largest)) {
      const ProbeHeader header{token, bytes, mtu};
      std::vector<std::byte> packet(payload_of(bytes, headers));
      std::memcpy(packet.data(), &header, sizeof header);
      sendto(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL, found->ai_addr,
             found->ai_addrlen);
    }
  }
}

int PathProbe::receive(std::uint64_t token, Deadline deadline) const {
  std::vector<std::byte> packet(kMaxDatagram);
  int largest = 0;
  while (wait_for(socket_.get(), POLLIN, deadline)) {
    const ssize_t n = recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    ProbeHeader header;
    if (n < static_cast<ssize_t>(sizeof header)) continue;
    std::memcpy(&header, packet.data(), sizeof header);
    if (header.token != token || header.bytes > header.mtu) continue;
    largest = std::max(largest, int{header.bytes});
    if (header.bytes == header.mtu) break;
  }
  return largest;
}

}  // namespace ddp::check
