// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/way_out.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/socket.h"

namespace ddp::check {
namespace {

constexpr std::chrono::seconds kKernelTimeout{1};
constexpr std::size_t kMaxReply = 4096;

// The request of `ip route get ADDRESS`; see rtnetlink(7).
struct RouteRequest {
  nlmsghdr header{};
  rtmsg route{};
  rtattr destination{};
  std::array<std::byte, sizeof(in6_addr)> address{};
};

RouteRequest request_for(const sockaddr* address) {
  RouteRequest request;
  const bool v6 = address->sa_family == AF_INET6;
  const std::size_t bytes = v6 ? sizeof(in6_addr) : sizeof(in_addr);
  const auto* first = reinterpret_cast<const std::byte*>(address) +
                      (v6 ? offsetof(sockaddr_in6, sin6_addr) : offsetof(sockaddr_in, sin_addr));
  std::memcpy(request.address.data(), first, bytes);
  request.destination.rta_type = RTA_DST;
  request.destination.rta_len = static_cast<std::uint16_t>(sizeof(rtattr) + bytes);
  request.route.rtm_family = static_cast<std::uint8_t>(address->sa_family);
  request.route.rtm_dst_len = static_cast<std::uint8_t>(8 * bytes);
  request.header.nlmsg_type = RTM_GETROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_len = static_cast<std::uint32_t>(offsetof(RouteRequest, address) + bytes);
  return request;
}

// The index of the interface in the kernel's reply; 0 if there is no route.
int interface_in(std::span<const std::byte> reply) {
  constexpr std::size_t kFirstAttribute = sizeof(nlmsghdr) + sizeof(rtmsg);
  nlmsghdr header{};
  if (reply.size() < kFirstAttribute) return 0;
  std::memcpy(&header, reply.data(), sizeof header);
  if (header.nlmsg_type != RTM_NEWROUTE) return 0;
  rtattr attribute{};
  int index = 0;
  for (std::size_t at = kFirstAttribute; at + sizeof attribute + sizeof index <= reply.size();
       at += (attribute.rta_len + 3U) & ~3U) {
    std::memcpy(&attribute, reply.data() + at, sizeof attribute);
    if (attribute.rta_len < sizeof attribute) return 0;
    if (attribute.rta_type != RTA_OIF) continue;
    std::memcpy(&index, reply.data() + at + sizeof attribute, sizeof index);
    return index;
  }
  return 0;
}

int ask_kernel(const sockaddr* address) {
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket) return 0;
  const RouteRequest request = request_for(address);
  if (send(socket.get(), &request, request.header.nlmsg_len, 0) < 0) return 0;
  if (!wait_for(socket.get(), POLLIN, Clock::now() + kKernelTimeout)) return 0;
  std::array<std::byte, kMaxReply> reply{};
  const ssize_t n = recv(socket.get(), reply.data(), reply.size(), MSG_DONTWAIT);
  return n <= 0 ? 0 : interface_in(std::span(reply).first(static_cast<std::size_t>(n)));
}

std::optional<WayOut> describe(int index) {
  ifreq request{};
  if (if_indextoname(static_cast<unsigned>(index), request.ifr_name) == nullptr) {
    return std::nullopt;
  }
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  WayOut way{request.ifr_name};
  if (ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return std::nullopt;
  way.loopback = (request.ifr_flags & IFF_LOOPBACK) != 0;
  if (ioctl(socket.get(), SIOCGIFMTU, &request) != 0) return std::nullopt;
  way.mtu = request.ifr_mtu;
  return way;
}

// A link-local address of IPv6 names its interface ("fe80::1%eth0"); 0 for any other.
int scope_of(const sockaddr* address) {
  if (address->sa_family != AF_INET6) return 0;
  sockaddr_in6 six{};
  std::memcpy(&six, address, sizeof six);
  return static_cast<int>(six.sin6_scope_id);
}

}  // namespace

std::optional<WayOut> way_out_to(const std::string& address) {
  const AddressList found = find_addresses(address, 0, AI_NUMERICHOST);
  if (!found) return std::nullopt;
  const int scope = scope_of(found->ai_addr);
  const int index = scope != 0 ? scope : ask_kernel(found->ai_addr);
  return index == 0 ? std::nullopt : describe(index);
}

}  // namespace ddp::check
