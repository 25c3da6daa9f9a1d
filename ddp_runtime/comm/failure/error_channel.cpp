// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/error_channel.h"

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/channel/connection.h"
#include "base/errors.h"
#include "base/secret/random_token.h"
#include "ddp_runtime/comm/failure/hub.h"
#include "ddp_runtime/comm/failure/hub_search.h"
#include "ddp_runtime/comm/failure/spoke.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/secret/text.h"

namespace ddp::comm {
namespace {

// A 63-bit hash that the ranks compare. It reveals nothing about the key; 0 means no key.
std::int64_t fingerprint(const std::optional<Key>& key) {
  if (!key) return 0;
  const Key digest = hmac_sha256(*key, "fingerprint");
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return static_cast<std::int64_t>((number >> 1) | 1);
}

// The secret that the hub and the ranks prove to each other. `token` is sent over the data path,
// where any listener on the network can read it. If all ranks have the same step key, which was
// never sent there, the secret is derived from it.
Key channel_key(Group& group, const std::optional<Key>& step_key, const std::string& token) {
  const std::int64_t mine = fingerprint(step_key);
  std::vector<std::int64_t> least{mine, -mine};
  group.all_reduce(buffer_of(std::span(least)), ReduceOp::min, "error channel's key").wait();
  const bool same = mine != 0 && least[0] == mine && least[1] == -mine;
  return hmac_sha256(same ? std::span<const std::byte>(*step_key) : std::span<const std::byte>(),
                     "error channel " + token);
}

HubAddress hub_address(const nlohmann::json& json) {
  return {json.at("hosts"), json.at("port"), json.at("who")};
}

// The limits grow with the number of ranks, because rank 0 may have to handle thousands of
// connections.
SearchLimits search_limits(int ranks) {
  const auto for_all = ranks * std::chrono::milliseconds(10);
  return {.each = std::chrono::seconds(5) + for_all, .in_all = std::chrono::seconds(15) + for_all};
}

// The facts that all ranks need before they rely on the channel. They exchange them over the data
// path, which still works at this point.
struct Agreement {
  int unreachable;  // the lowest rank without a connection to rank 0; size() if there is none
  int elsewhere;    // the lowest rank on a different node than rank 0; size() if there is none
};

Agreement agree(Group& group, bool reached, bool elsewhere) {
  std::vector<std::int64_t> lowest{reached ? group.size() : group.rank(),
                                   elsewhere ? group.rank() : group.size()};
  try {
    group.all_reduce(buffer_of(std::span(lowest)), ReduceOp::min, "error channel").wait();
  } catch (const RuntimeError&) {
    if (!reached) throw;
    // Another rank has failed or was lost, possibly after it finished this step. This end of the
    // channel and the next operation both report that failure.
    return {group.size(), group.size()};
  }
  return {static_cast<int>(lowest[0]), static_cast<int>(lowest[1])};
}

}  // namespace

ErrorChannel::ErrorChannel(Group& group, FailureState& failures, ChannelOptions options) {
  if (group.size() == 1) return;
  options.liveness = scaled(options.liveness, group.size());
  const bool is_hub = group.rank() == 0;
  std::optional<Listener> listener;
  nlohmann::json endpoint;
  if (is_hub) {
    listener = listen_anywhere();
    endpoint = {{"hosts", own_addresses()},
                {"port", listener->port},
                {"token", random_token()},
                {"who", process_name()}};
  }
  endpoint = nlohmann::json::parse(group.broadcast_text(as_text(endpoint), 0));
  const HubAddress hub = hub_address(endpoint);
  const Key key = channel_key(group, options.step_key, endpoint.at("token"));

  Reached reached;
  if (is_hub) {
    end_ = std::make_unique<Hub>(failures, group.flight_recorder(), *std::move(listener), key,
                                 group.size(), options);
  } else {
    reached =
        reach_hub(hub, {key, group.rank(), process_name()}, search_limits(group.size()), failures);
  }
  if (reached.connection) {
    Spoke::Who who{group.rank(), key, hub.who};
    for (auto& host : numeric(hub.hosts)) who.addresses.push_back({std::move(host), hub.port});
    end_ = std::make_unique<Spoke>(failures, group.flight_recorder(),
                                   *std::move(reached.connection), std::move(who), options);
  }
  const auto all = agree(group, end_ != nullptr, node_of(process_name()) != node_of(hub.who));
  if (all.elsewhere < group.size()) deputy_ = all.elsewhere;
  if (end_ && (is_hub || group.rank() == deputy_)) end_->speak();
  if (all.unreachable == group.size()) return;
  // Thrown on all ranks. The unreachable rank prints it, because its own message has the most
  // details.
  throw PeerFailure(all.unreachable, why_unreachable(hub, reached), /*lost=*/false);
}

ErrorChannel::~ErrorChannel() = default;

std::optional<Failure> ErrorChannel::verdict(std::chrono::milliseconds timeout) {
  return end_ ? end_->verdict(timeout) : std::nullopt;
}

bool ErrorChannel::wait_for_peer_exit(std::chrono::milliseconds timeout) {
  return !end_ || end_->wait_for_peer_exit(timeout);
}

}  // namespace ddp::comm
