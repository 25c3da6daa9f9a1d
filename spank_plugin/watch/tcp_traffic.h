// SPDX-License-Identifier: Apache-2.0
// What some processes have sent and received over TCP, which /proc/PID/io does not count. The
// kernel tells it without any privilege; see sock_diag(7).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>

#include "spank_plugin/watch/process_tree.h"

namespace ddp::watch {

// Two that are equal: nothing was sent, received, connected or closed in between.
struct TcpTraffic {
  std::uint64_t bytes = 0;    // acknowledged by the peers, and received
  std::uint64_t sockets = 0;  // the sum of their inodes: another set has another one

  bool operator==(const TcpTraffic&) const = default;
};

// Adds up the connections of IPv4 and IPv6 that the processes hold. Only those in this process's
// network namespace are seen. Returns nullopt if the kernel refuses or takes seconds, or if
// their files cannot be listed. Its cost grows with the number of all connections of the namespace.
std::optional<TcpTraffic> read_tcp_traffic(std::span<const Process> processes);

// The part that parses, for tests.
using SocketInodes = std::unordered_set<std::uint32_t>;
enum class Dump { incomplete, complete, failed };
// Adds what one read from the kernel tells about `sockets`, and removes these from the set.
Dump add_dump(std::string_view messages, SocketInodes& sockets, TcpTraffic& traffic) noexcept;

}  // namespace ddp::watch
