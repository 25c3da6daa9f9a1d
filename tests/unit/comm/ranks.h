// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, whose messages are copied in memory, or with SLURM_DDP_TEST_TRANSPORT=tcp sent
// over TCP.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include "base/socket.h"
#include "ddp_runtime/comm/p2p/run_ranks.h"
#include "ddp_runtime/comm/transport/tcp/tcp_transport.h"

namespace ddp::comm::test {

inline bool over_tcp() {
  const char* const transport = std::getenv("SLURM_DDP_TEST_TRANSPORT");
  return transport != nullptr && std::string_view(transport) == "tcp";
}

// A plan of ranks of this machine.
inline TcpPlan local_plan(int ranks) {
  TcpPlan plan;
  plan.leader = "127.0.0.1";
  plan.port = open_listener(0).port;  // free a moment ago
  plan.ranks = ranks;
  plan.key = hmac_sha256({}, "test");
  plan.node = "node 0";
  return plan;
}

// See comm::run_ranks.
inline void run_ranks(int ranks, const std::function<void(Group&)>& body,
                      const GroupOptions& options = {},
                      const std::function<int(int rank)>& node_of = {}) {
  if (!over_tcp()) return comm::run_ranks(ranks, body, options, node_of);
  const auto plan = local_plan(ranks);
  const auto make = [&](int rank, const FailureState& failures) {
    auto mine = plan;
    mine.rank = rank;
    if (node_of) mine.node = "node " + std::to_string(node_of(rank));
    return make_tcp_transport(mine, failures, std::chrono::seconds(60));
  };
  run_ranks_over(make, ranks, body, options);
}

}  // namespace ddp::comm::test
