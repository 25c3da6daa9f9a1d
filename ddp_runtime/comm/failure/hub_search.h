// SPDX-License-Identifier: Apache-2.0
// Finds rank 0 when the job starts, from a list of addresses. Some of these addresses may belong to
// other machines.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/channel/connection.h"
#include "base/channel/greeting.h"
#include "base/secret/key.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"

namespace ddp::comm {

// The addresses at which rank 0 may be reached, and its description.
struct HubAddress {
  std::vector<std::string> hosts;
  std::uint16_t port = 0;
  std::string who;
};

struct SearchLimits {
  std::chrono::milliseconds each;  // for the handshake at one address
  std::chrono::milliseconds in_all;
};

// The searching rank.
struct Searcher {
  Key key{};
  int rank = 0;
  std::string who;
};

// Outcome of the search.
struct Reached {
  std::optional<Connection> connection;          // a connection that rank 0 has accepted
  std::optional<Connection::Endpoint> stranger;  // another program answered here
  std::optional<Connection::Endpoint> silent;    // accepted a connection but did not answer
};

// Tries the addresses in turn, repeatedly, until the time is up or a rank has failed.
Reached reach_hub(const HubAddress& hub, const Searcher& rank, const SearchLimits& limits,
                  const FailureState& failures);

// One sentence that explains why there is no connection.
std::string why_unreachable(const HubAddress& hub, const Reached& reached);
// "the program at 10.0.0.1, port 4711, is not rank 0 of this job: ..."
std::string describe_stranger(const Connection::Endpoint& at);

}  // namespace ddp::comm
