// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/tcp_traffic.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/text.h"

namespace ddp::watch {
namespace {

constexpr std::size_t kMaxFiles = 1U << 16U;  // of all processes together
constexpr std::size_t kBuffer = 1U << 16U;    // the kernel sends at most 32 KiB at once
constexpr auto kTimeLimit = std::chrono::seconds(1);
// A bit per state of linux/tcp_states.h: those that no process holds, or that move no bytes.
constexpr std::uint32_t kTimeWait = 1U << 6U;
constexpr std::uint32_t kListen = 1U << 10U;

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

// The values of a message need not be aligned. What a short one lacks is zero.
template <typename Value>
Value value_at(std::string_view bytes) noexcept {
  Value value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

std::uint64_t bytes_in(std::string_view attributes) noexcept {
  while (attributes.size() >= sizeof(rtattr)) {
    const auto attribute = value_at<rtattr>(attributes);
    if (attribute.rta_len < sizeof(rtattr)) return 0;
    if (attribute.rta_type == INET_DIAG_INFO) {
      const auto content = attributes.substr(sizeof(rtattr), attribute.rta_len - sizeof(rtattr));
      const auto info = value_at<tcp_info>(content);
      return info.tcpi_bytes_acked + info.tcpi_bytes_received;
    }
    const std::size_t length = RTA_ALIGN(attribute.rta_len);
    attributes.remove_prefix(std::min(length, attributes.size()));
  }
  return 0;
}

void add_socket(std::string_view body, SocketInodes& sockets, TcpTraffic& traffic) noexcept {
  if (body.size() < sizeof(inet_diag_msg)) return;
  const auto inode = value_at<inet_diag_msg>(body).idiag_inode;
  if (sockets.erase(inode) == 0) return;
  traffic.bytes += bytes_in(body.substr(sizeof(inet_diag_msg)));
  traffic.sockets += inode;
}

std::optional<SocketInodes> sockets_of(std::span<const Process> processes) {
  constexpr std::string_view kPrefix = "socket:[";
  SocketInodes sockets;
  std::size_t files = 0;
  for (const auto& process : processes) {
    std::error_code error;
    std::filesystem::directory_iterator file("/proc/" + std::to_string(process.pid) + "/fd", error);
    if (error == std::errc::permission_denied) return std::nullopt;
    for (; files < kMaxFiles && file != end(file); ++files, file.increment(error)) {
      std::error_code ignored;
      const std::string target = std::filesystem::read_symlink(file->path(), ignored).string();
      if (!target.starts_with(kPrefix)) continue;
      const auto number = std::string_view(target).substr(kPrefix.size());
      if (const auto inode = parse_decimal(number.substr(0, number.find(']')))) {
        sockets.insert(*inode);
      }
    }
  }
  return sockets;
}

FileDescriptor connect_to_kernel() noexcept {
  FileDescriptor kernel(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  const timeval limit{kTimeLimit.count(), 0};
  setsockopt(kernel.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return kernel;
}

bool ask(int kernel, int family) noexcept {
  Request request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = static_cast<std::uint8_t>(family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_ext = 1U << (INET_DIAG_INFO - 1U);
  request.body.idiag_states = ~(kListen | kTimeWait);
  return send(kernel, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request);
}

bool receive(int kernel, SocketInodes& sockets, TcpTraffic& traffic) {
  const Deadline deadline = Clock::now() + kTimeLimit;
  std::string buffer(kBuffer, '\0');
  while (Clock::now() < deadline) {
    const ssize_t count = recv(kernel, buffer.data(), buffer.size(), MSG_TRUNC);
    if (count < 0 && errno == EINTR) continue;
    const auto size = static_cast<std::size_t>(count);
    if (count <= 0 || size > buffer.size()) return false;
    const Dump dump = add_dump(std::string_view(buffer).substr(0, size), sockets, traffic);
    if (dump != Dump::incomplete) return dump == Dump::complete;
  }
  return false;
}

}  // namespace

Dump add_dump(std::string_view messages, SocketInodes& sockets, TcpTraffic& traffic) noexcept {
  while (!messages.empty()) {
    const auto header = value_at<nlmsghdr>(messages);
    const std::size_t length = header.nlmsg_len;
    if (length < sizeof header || length > messages.size()) return Dump::failed;
    const auto body = messages.substr(sizeof header, length - sizeof header);
    if (header.nlmsg_type == NLMSG_ERROR) return Dump::failed;
    if (header.nlmsg_type == NLMSG_DONE) {
      return value_at<int>(body) < 0 ? Dump::failed : Dump::complete;  // the end has a status
    }
    if (header.nlmsg_type == SOCK_DIAG_BY_FAMILY) add_socket(body, sockets, traffic);
    messages.remove_prefix(std::min<std::size_t>(NLMSG_ALIGN(length), messages.size()));
  }
  return Dump::incomplete;
}

std::optional<TcpTraffic> read_tcp_traffic(std::span<const Process> processes) {
  TcpTraffic traffic;
  auto sockets = sockets_of(processes);
  if (!sockets) return std::nullopt;
  if (sockets->empty()) return traffic;
  const FileDescriptor kernel = connect_to_kernel();
  if (!kernel) return std::nullopt;
  for (const int family : {AF_INET, AF_INET6}) {
    if (sockets->empty()) break;
    if (!ask(kernel.get(), family)) return std::nullopt;
    if (!receive(kernel.get(), *sockets, traffic)) return std::nullopt;
  }
  return traffic;
}

}  // namespace ddp::watch
