// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/path_stage.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/secret/key.h"
#include "ddp_runtime/check/net/locate/pair_schedule.h"
#include "ddp_runtime/check/net/pair_stage.h"

namespace ddp::check {
namespace {

constexpr std::chrono::milliseconds kTimeout{5000};

class PathStage {
 public:
  PathStage(Leader& leader, const std::vector<NodeEntry>& nodes, bool over_loopback)
      : leader_(leader), nodes_(nodes), over_loopback_(over_loopback) {}

  std::vector<PathResult> run_round(const Round& round) {
    ByRank commands;
    Round asked;
    for (const Pair& pair : round) {
      const Hello& a = speaker(pair.a);
      const Hello& b = speaker(pair.b);
      const std::uint64_t token = random_number();  // marks this probe's datagrams; unguessable
      commands[node(pair.a).ranks.front()] = order_for(a, b, token);
      commands[node(pair.b).ranks.front()] = order_for(b, a, token);
      asked.push_back(pair);
    }
    const ByRank answers = leader_.ask(commands, "probing packet sizes", kTimeout);
    std::vector<PathResult> results;
    for (const Pair& pair : asked) {
      const auto a = answers.find(node(pair.a).ranks.front());
      const auto b = answers.find(node(pair.b).ranks.front());
      if (a == answers.end() || b == answers.end()) continue;
      const PathResult result{pair, a->second.value("mtu", 0), b->second.value("mtu", 0),
                              a->second.value("arrived", 0), b->second.value("arrived", 0)};
      if (result.mtu_a > 0 && result.mtu_b > 0) results.push_back(result);
    }
    return results;
  }

 private:
  nlohmann::json order_for(const Hello& own, const Hello& peer, std::uint64_t token) const {
    return {{"do", "probe_path"},
            {"host", address_for(own, peer)},
            {"port", peer.probe_port},
            {"over_loopback", over_loopback_},
            {"token", token}};
  }
  const NodeEntry& node(int number) const { return nodes_[static_cast<std::size_t>(number)]; }
  const Hello& speaker(int number) const {
    return leader_.present().at(node(number).ranks.front());
  }

  Leader& leader_;
  const std::vector<NodeEntry>& nodes_;
  bool over_loopback_;
};

}  // namespace

std::vector<PathResult> probe_paths(Leader& leader, const std::vector<NodeEntry>& nodes,
                                    std::uint64_t seed, bool over_loopback) {
  PathStage stage(leader, nodes, over_loopback);
  std::map<Pair, PathResult> best;
  for (Round round : plan_rounds(static_cast<int>(nodes.size()), seed)) {
    for (int attempt = 0; attempt < 2 && !round.empty(); ++attempt) {
      const auto results = stage.run_round(round);
      round.clear();
      for (const auto& result : results) {
        PathResult& kept = best.emplace(result.pair, result).first->second;
        kept.arrived_at_a = std::max(kept.arrived_at_a, result.arrived_at_a);
        kept.arrived_at_b = std::max(kept.arrived_at_b, result.arrived_at_b);
        if (!all_arrived(kept)) round.push_back(result.pair);
      }
    }
  }
  std::vector<PathResult> results;
  results.reserve(best.size());
  for (const auto& [pair, result] : best) results.push_back(result);
  return results;
}

}  // namespace ddp::check
