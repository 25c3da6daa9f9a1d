#include "ddp_runtime/comm/failure/error_channel.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/hub.h"
#include "ddp_runtime/comm/failure/spoke.h"
#include "ddp_runtime/comm/random_token.h"

namespace ddp::comm {
namespace {

std::optional<Connection> reach_hub(const nlohmann::json& endpoint, int rank) {
  const auto token = endpoint.at("token").get<std::string>();
  const auto port = endpoint.at("port").get<std::uint16_t>();
  // One address after the other, each proved by the hub's answer: an address may be another
  // machine's here (127.0.0.1, a docker bridge) with a stranger behind the same port.
  for (const auto& host : endpoint.at("hosts").get<std::vector<std::string>>()) {
    auto connection = Connection::open({host}, port, std::chrono::seconds(3));
    if (!connection) continue;
    if (!connection->send({MessageKind::hello, rank, token + " " + who_am_i()})) continue;
    const auto answer = connection->await(std::chrono::seconds(5));
    if (answer && answer->kind == MessageKind::welcome) return connection;
  }
  return std::nullopt;
}

// The lowest rank without a connection to rank 0; size() if there is none. All must agree before
// anyone relies on the channel: the data path still works, so it is what they use.
int first_unreachable(Group& group, bool reached) {
  try {
    return group.all_reduce_value(reached ? group.size() : group.rank(), ReduceOp::min);
  } catch (const RuntimeError&) {
    if (!reached) throw;
    // Another rank is through here already and has failed since, or was lost on the way. This end
    // is there to hear of it, and the next operation tells whoever asks for one.
    return group.size();
  }
}

}  // namespace

ErrorChannel::ErrorChannel(Group& group, FailureState& failures, std::string dump) {
  if (group.size() == 1) return;
  const bool is_hub = group.rank() == 0;
  nlohmann::json endpoint;
  if (is_hub) {
    Listener listener = listen_anywhere();
    endpoint = {{"hosts", own_addresses()},
                {"port", listener.port},
                {"token", random_token()},
                {"who", who_am_i()}};
    end_ = std::make_unique<Hub>(failures, group.activity(), std::move(listener),
                                 endpoint.at("token"), group.size(), std::move(dump));
  }
  endpoint = nlohmann::json::parse(group.broadcast_text(endpoint.dump(), 0));

  if (!is_hub) {
    if (auto connection = reach_hub(endpoint, group.rank())) {
      end_ = std::make_unique<Spoke>(failures, group.activity(), std::move(*connection),
                                     group.rank(), endpoint.at("who").get<std::string>());
    }
  }
  const int first = first_unreachable(group, end_ != nullptr);
  if (first == group.size()) return;
  // The same on all ranks; that rank is the one to print it.
  throw PeerFailure(
      first,
      fmt::format("this rank cannot open a TCP connection to rank 0 ({}, port {}) by any of: {}; a "
                  "firewall between the nodes, or MASTER_ADDR names the wrong interface",
                  endpoint.at("who").get<std::string>(), endpoint.at("port").get<int>(),
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
