#include "ddp_runtime/check/net/own_link.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "spank_plugin/fabric/network_interface.h"

namespace ddp::check {
namespace {

std::string numeric(const sockaddr* address) {
  if (address == nullptr) return {};
  const socklen_t length = address->sa_family == AF_INET    ? sizeof(sockaddr_in)
                           : address->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                            : 0;
  std::array<char, NI_MAXHOST> text{};
  if (length == 0 ||
      getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return text.data();
}

std::string interface_with(const std::string& address) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (numeric(i->ifa_addr) == address) return i->ifa_name;
  }
  return {};
}

}  // namespace

void describe_link(Hello& hello) {
  hello.interface = interface_with(hello.address);
  for (const auto& interface : fabric::read_network_interfaces("/sys")) {
    if (interface.name != hello.interface) continue;
    hello.mtu = interface.mtu;
    if (interface.speed_mbps && fabric::has_wire_speed(interface.kind)) {
      hello.link_bytes_per_second = *interface.speed_mbps * 1e6 / 8;
    }
  }
}

}  // namespace ddp::check
