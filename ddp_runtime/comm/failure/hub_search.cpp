// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/hub_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <thread>
#include <utility>

#include "base/channel/running_clock.h"

namespace ddp::comm {
namespace {

// Whether the hub answers at this address.
bool try_address(const Connection::Endpoint& at, const Searcher& rank,
                 std::chrono::milliseconds timeout, Reached& reached) {
  auto connection = Connection::open({at.host}, at.port, std::chrono::seconds(3));
  if (!connection) return false;
  switch (greet(*connection, {rank.key, rank.rank, rank.who}, timeout)) {
    case Greeted::stranger:
      reached.stranger = at;
      return false;
    case Greeted::silent:
      reached.silent = at;
      return false;
    case Greeted::welcome:
      break;
  }
  connection->send({MessageKind::alive, 0, {}});
  reached.connection = std::move(connection);
  return true;
}

}  // namespace

Reached reach_hub(const HubAddress& hub, const Searcher& rank, const SearchLimits& limits,
                  const FailureState& failures) {
  RunningClock clock(std::chrono::seconds(30));
  const auto deadline = clock.now() + limits.in_all;
  Reached reached;
  while (true) {
    for (const auto& host : hub.hosts) {
      for (const auto& address : addresses_of(host)) {
        if (try_address({address, hub.port}, rank, limits.each, reached)) return reached;
      }
    }
    if (clock.look() > deadline || failures.failed()) return reached;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

std::string why_unreachable(const HubAddress& hub, const Reached& reached) {
  const auto rank_0 = fmt::format("this rank cannot open a TCP connection to rank 0 ({}, port {})",
                                  hub.who, hub.port);
  if (reached.stranger) return fmt::format("{}: {}", rank_0, describe_stranger(*reached.stranger));
  if (reached.silent) {
    return fmt::format(
        "{}: {} accepts the connection but does not answer; another program uses that port, or "
        "rank 0's machine is overloaded",
        rank_0, reached.silent->host);
  }
  return fmt::format(
      "{} at any of: {}; a firewall blocks it, or MASTER_ADDR names the wrong interface", rank_0,
      fmt::join(hub.hosts, ", "));
}

std::string describe_stranger(const Connection::Endpoint& at) {
  return fmt::format(
      "the program at {}, port {}, is not rank 0 of this job, because it does not have the job's "
      "key: another program uses that port, or the address belongs to another machine",
      at.host, at.port);
}

}  // namespace ddp::comm
