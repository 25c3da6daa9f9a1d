// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/port_probe.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text_file.h"
#include "spank_plugin/launch/step/ephemeral_ports.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/socket_table.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxFile = 16U << 20U;  // a table of about 100,000 sockets

std::string read_or_nothing(const char* path) {
  return read_text(path, kMaxFile).value_or("");
}

// True if the address family exists here and the port is taken in it.
bool is_taken(int family, const sockaddr* address, socklen_t length) noexcept {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on,
             sizeof on);  // like a server, ignore TIME_WAIT
  const bool taken = bind(fd, address, length) != 0 && errno == EADDRINUSE;
  close(fd);
  return taken;
}

}  // namespace

bool is_port_free(std::uint16_t port) noexcept {
  sockaddr_in6 v6{};  // the wildcard address, which also accepts IPv4
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  return !is_taken(AF_INET6, reinterpret_cast<const sockaddr*>(&v6), sizeof v6) &&
         !is_taken(AF_INET, reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
}

std::optional<std::uint16_t> first_free_port(std::span<const std::uint16_t> ports) noexcept {
  const auto free = std::find_if(ports.begin(), ports.end(), is_port_free);
  return free == ports.end() ? std::nullopt : std::optional(*free);
}

std::string describe_taken_port(std::uint16_t port) {
  std::string text = "port " + std::to_string(port) + " is taken on this host";
  auto holder = find_port_holder(read_or_nothing("/proc/net/tcp"), port);
  if (!holder) holder = find_port_holder(read_or_nothing("/proc/net/tcp6"), port);
  if (!holder) return text;
  return text + " (user " + std::to_string(holder->user) +
         (holder->listens ? " listens on it)" : " has a connection through it)");
}

std::uint32_t count_ephemeral_here(PortRange range) {
  try {
    return count_ephemeral(range, read_or_nothing("/proc/sys/net/ipv4/ip_local_port_range"),
                           read_or_nothing("/proc/sys/net/ipv4/ip_local_reserved_ports"));
  } catch (const LaunchError&) {  // the kernel uses another format
    return 0;
  }
}

}  // namespace ddp::launch
