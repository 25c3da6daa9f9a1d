#include "ddp_runtime/comm/failure/error_channel.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/hub.h"
#include "ddp_runtime/comm/failure/spoke.h"
#include "ddp_runtime/comm/random_token.h"
#include "ddp_runtime/comm/text.h"

namespace ddp::comm {
namespace {

std::optional<Connection> try_address(const std::string& host, std::uint16_t port,
                                      const Message& greeting, std::chrono::milliseconds patience) {
  auto connection = Connection::open({host}, port, std::chrono::seconds(3));
  if (!connection || !connection->send(greeting)) return std::nullopt;
  const auto answer = connection->await(patience);
  if (!answer || answer->kind != MessageKind::welcome) return std::nullopt;
  connection->send({MessageKind::alive, 0, {}});
  return connection;
}

// One address after the other, each proved by the hub's answer: an address may be another machine's
// here (127.0.0.1, a docker bridge) with a stranger behind the same port. Again and again for a
// while: rank 0's machine may be busy with the connections of thousands.
std::optional<Connection> reach_hub(const nlohmann::json& endpoint, const Group& group,
                                    const FailureState& failures) {
  const auto hosts = endpoint.at("hosts").get<std::vector<std::string>>();
  const auto port = endpoint.at("port").get<std::uint16_t>();
  const auto greeting = hello(group.rank(), endpoint.at("token").get<std::string>());
  const auto for_all = group.size() * std::chrono::milliseconds(10);
  RunningClock clock(std::chrono::seconds(30));
  const auto deadline = clock.now() + std::chrono::seconds(15) + for_all;
  while (true) {
    for (const auto& host : hosts) {
      if (auto connection = try_address(host, port, greeting, std::chrono::seconds(5) + for_all))
        return connection;
    }
    if (clock.look() > deadline || failures.failed()) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// What all ranks must know of each other before anyone relies on the channel: the data path still
// works, so it is what they use.
struct Agreement {
  int unreachable;  // the lowest rank without a connection to rank 0; size() if there is none
  int elsewhere;    // the lowest rank on another node than rank 0; size() if there is none
};

Agreement agree(Group& group, bool reached, bool elsewhere) {
  std::vector<std::int64_t> lowest{reached ? group.size() : group.rank(),
                                   elsewhere ? group.rank() : group.size()};
  try {
    group.all_reduce(buffer_of(std::span(lowest)), ReduceOp::min, "error channel").wait();
  } catch (const RuntimeError&) {
    if (!reached) throw;
    // Another rank is through here already and has failed since, or was lost on the way. This end
    // is there to hear of it, and the next operation tells whoever asks for one.
    return {group.size(), group.size()};
  }
  return {static_cast<int>(lowest[0]), static_cast<int>(lowest[1])};
}

}  // namespace

ErrorChannel::ErrorChannel(Group& group, FailureState& failures, ChannelOptions options) {
  if (group.size() == 1) return;
  options.liveness = scaled(options.liveness, group.size());
  const bool is_hub = group.rank() == 0;
  nlohmann::json endpoint;
  if (is_hub) {
    Listener listener = listen_anywhere();
    endpoint = {{"hosts", own_addresses()},
                {"port", listener.port},
                {"token", random_token()},
                {"who", who_am_i()}};
    end_ = std::make_unique<Hub>(failures, group.activity(), std::move(listener),
                                 endpoint.at("token"), group.size(), options);
  }
  endpoint = nlohmann::json::parse(group.broadcast_text(as_text(endpoint), 0));
  const auto who = endpoint.at("who").get<std::string>();

  if (!is_hub) {
    if (auto connection = reach_hub(endpoint, group, failures)) {
      end_ = std::make_unique<Spoke>(
          failures, group.activity(), std::move(*connection),
          Spoke::Who{group.rank(), endpoint.at("token").get<std::string>(), who}, options);
    }
  }
  const auto all = agree(group, end_ != nullptr, node_of(who_am_i()) != node_of(who));
  if (all.elsewhere < group.size()) deputy_ = all.elsewhere;
  if (all.unreachable == group.size()) return;
  // The same on all ranks; that rank is the one to print it.
  throw PeerFailure(
      all.unreachable,
      fmt::format("this rank cannot open a TCP connection to rank 0 ({}, port {}) by any of: {}; a "
                  "firewall between the nodes, or MASTER_ADDR names the wrong interface",
                  who, endpoint.at("port").get<int>(),
                  fmt::join(endpoint.at("hosts").get<std::vector<std::string>>(), ", ")),
      /*lost=*/false);
}

ErrorChannel::~ErrorChannel() = default;

std::optional<Failure> ErrorChannel::verdict(std::chrono::milliseconds patience) {
  return end_ ? end_->verdict(patience) : std::nullopt;
}

bool ErrorChannel::others_gone(std::chrono::milliseconds patience) {
  return !end_ || end_->others_gone(patience);
}

}  // namespace ddp::comm
