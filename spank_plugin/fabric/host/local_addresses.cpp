// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/host/local_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <memory>

namespace ddp::fabric {
namespace {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
};

// Any port works: connecting a datagram socket sends nothing.
Endpoint endpoint_of(const IpAddress& address) {
  constexpr std::uint16_t kDiscardPort = 9;
  Endpoint endpoint;
  if (address.is_v6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(kDiscardPort);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), sizeof v6.sin6_addr);
    std::memcpy(&endpoint.address, &v6, sizeof v6);
    endpoint.size = sizeof v6;
  } else {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(kDiscardPort);
    std::memcpy(&v4.sin_addr, address.bytes.data(), sizeof v4.sin_addr);
    std::memcpy(&endpoint.address, &v4, sizeof v4);
    endpoint.size = sizeof v4;
  }
  return endpoint;
}

// Returns nullopt for families other than IPv4 and IPv6.
std::optional<IpAddress> address_in(const sockaddr* socket_address) {
  IpAddress address;
  if (socket_address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, socket_address, sizeof v4);
    std::memcpy(address.bytes.data(), &v4.sin_addr, sizeof v4.sin_addr);
    return address;
  }
  if (socket_address->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, socket_address, sizeof v6);
  std::memcpy(address.bytes.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  address.is_v6 = true;
  return address;
}

int prefix_bits_of(const sockaddr* mask) {
  const auto bytes = mask == nullptr ? std::nullopt : address_in(mask);
  int bits = 0;
  if (bytes) {
    for (const auto byte : bytes->bytes) bits += std::popcount(byte);
  }
  return bits;
}

class DatagramSocket {
 public:
  explicit DatagramSocket(int family) : fd_(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;
  ~DatagramSocket() {
    if (fd_ >= 0) close(fd_);
  }

  std::optional<IpAddress> source_towards(const Endpoint& to) const {
    if (fd_ < 0) return std::nullopt;
    const auto* target = reinterpret_cast<const sockaddr*>(&to.address);
    if (connect(fd_, target, to.size) != 0) return std::nullopt;
    Endpoint from;
    from.size = sizeof from.address;
    auto* source = reinterpret_cast<sockaddr*>(&from.address);
    if (getsockname(fd_, source, &from.size) != 0) return std::nullopt;
    return address_in(source);
  }

 private:
  int fd_;
};

}  // namespace

std::vector<InterfaceAddress> local_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (const auto address = address_in(entry->ifa_addr)) {
      addresses.push_back({entry->ifa_name, *address, prefix_bits_of(entry->ifa_netmask)});
    }
  }
  return addresses;
}

std::optional<std::string> source_address_to(const std::string& destination) {
  const auto address = parse_ip_address(destination);
  if (!address) return std::nullopt;
  const auto source =
      DatagramSocket(address->is_v6 ? AF_INET6 : AF_INET).source_towards(endpoint_of(*address));
  return source ? std::optional(to_string(*source)) : std::nullopt;
}

}  // namespace ddp::fabric
