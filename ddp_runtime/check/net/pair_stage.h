// SPDX-License-Identifier: Apache-2.0
// Runs the exchanges that PairSession plans, over TCP, RDMA, NCCL or MPI.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/locate/pair_session.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

struct PairStageOptions {
  TransportKind stage = TransportKind::tcp;
  std::size_t bytes = 0;            // size of one exchange in each direction
  std::chrono::milliseconds limit;  // time limit for one exchange
  std::chrono::milliseconds grace;  // time for command and answer, in addition to the limit
  std::uint64_t seed = 0;           // seed of the plan, and first number of the exchanges
  PeerRule rule;                    // thresholds for slow nodes
  int rounds = 0;                   // rounds of the tournament; 0: chosen by PairSession
  std::string rail = {};            // the interface to use; empty: chosen by the kernel
  Classes classes = {};             // classes of the nodes, by link rate
  std::map<std::string, RdmaPort> ports = {};  // RDMA: the ports of the rail, by node
};

// The address at which `caller` reaches `called`. A task on the leader's node may know only its
// loopback address; tasks on other nodes then use the address at which they reached the leader.
std::string address_for(const Hello& caller, const Hello& called);

class PairStage {
 public:
  // All nodes have reported and have what the stage measures.
  PairStage(Leader& leader, const std::vector<NodeEntry>& nodes, const PairStageOptions& options);

  // Runs all planned rounds, then the retests of suspects. Later rounds omit nodes that were lost.
  void run(const Leader::Progress& progress);

  // The results of the rounds.
  const std::vector<PairResult>& results() const noexcept { return session_.results(); }
  const std::vector<Retest>& retests() const noexcept { return session_.retests(); }
  // Why the stage stopped early; empty if it did not. MPI cannot continue after an error.
  const std::string& broken() const noexcept { return broken_; }

 private:
  std::vector<PairResult> run_round(const Round& round, const std::string& during);
  std::vector<PairResult> run_once(const Round& round, const std::string& during);
  bool can_take_part(int node) const;
  ExchangeCommand order_for(int node, int partner, bool first, std::uint64_t exchange,
                            const std::string& token) const;
  std::optional<PairResult> result_of(const Pair& pair, const ByRank& answers);
  std::string failure_of(const Pair& pair, const ByRank& answers) const;

  Leader& leader_;
  const std::vector<NodeEntry>& nodes_;
  PairStageOptions options_;
  std::uint64_t next_exchange_;
  PairSession session_;
  std::string broken_;
};

}  // namespace ddp::check
