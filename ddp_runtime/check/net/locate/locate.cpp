// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/locate/locate.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ddp::check {
namespace {

std::size_t at(int node) {
  return static_cast<std::size_t>(node);
}

// The partners of each node in all pairs.
std::vector<std::set<int>> partners(int nodes, std::span<const Pair> pairs) {
  std::vector<std::set<int>> result(at(nodes));
  for (const auto& [a, b] : pairs) {
    result[at(a)].insert(b);
    result[at(b)].insert(a);
  }
  return result;
}

void forget(std::vector<Pair>& pairs, int node) {
  std::erase_if(pairs, [node](const Pair& pair) { return pair.a == node || pair.b == node; });
}

// The node with the most bad partners, unless there is a tie. Such a node has at least two, because
// both ends of a single pair have one each.
std::optional<int> most_bad_links(int nodes, std::span<const Pair> bad) {
  const auto accusers = partners(nodes, bad);
  int worst = -1;
  bool alone = false;
  for (int node = 0; node < nodes; ++node) {
    const std::size_t count = accusers[at(node)].size();
    if (worst < 0 || count > accusers[at(worst)].size()) {
      worst = node;
      alone = true;
    } else if (count == accusers[at(worst)].size()) {
      alone = false;
    }
  }
  return alone ? std::optional(worst) : std::nullopt;
}

// Nodes with at least two partners whose pairs are all bad.
std::vector<int> without_good_pair(int nodes, std::span<const Pair> bad,
                                   std::span<const Pair> good) {
  const auto bad_partners = partners(nodes, bad);
  const auto good_partners = partners(nodes, good);
  std::vector<int> result;
  for (int node = 0; node < nodes; ++node) {
    if (good_partners[at(node)].empty() && bad_partners[at(node)].size() >= 2) {
      result.push_back(node);
    }
  }
  return result;
}

bool has_healthy_peer(int node, std::span<const Pair> bad, const std::vector<bool>& suspected) {
  return std::any_of(bad.begin(), bad.end(), [&](const Pair& pair) {
    return (pair.a == node && !suspected[at(pair.b)]) || (pair.b == node && !suspected[at(pair.a)]);
  });
}

}  // namespace

int class_of(const Classes& classes, int node) {
  return classes.empty() ? 0 : classes[at(node)];
}

int class_of(const Classes& classes, const Pair& pair) {
  return std::min(class_of(classes, pair.a), class_of(classes, pair.b));
}

Classes classes_by_rate(const std::vector<std::optional<double>>& rates) {
  std::map<double, int> counts;
  for (const auto& rate : rates) {
    if (rate) ++counts[*rate];
  }
  if (counts.size() < 2) return {};
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  Classes classes;
  for (const auto& rate : rates) {
    classes.push_back(
        static_cast<int>(std::distance(counts.begin(), counts.find(rate.value_or(most->first)))));
  }
  return classes;
}

std::vector<std::optional<double>> best_speeds(int nodes, std::span<const PairResult> results,
                                               Direction direction, const Classes& classes) {
  std::vector<std::optional<double>> best(at(nodes));
  const auto raise = [&](const Pair& pair, int node, double speed) {
    if (class_of(classes, pair) != class_of(classes, node)) return;
    auto& value = best[at(node)];
    value = std::max(value.value_or(0), speed);
  };
  for (const auto& result : results) {
    if (!result.measured()) continue;
    const bool send = direction == Direction::send;
    raise(result.pair, result.pair.a, send ? result.a_to_b : result.b_to_a);
    raise(result.pair, result.pair.b, send ? result.b_to_a : result.a_to_b);
  }
  return best;
}

Explanation explain(int nodes, std::span<const Pair> bad, std::span<const Pair> good,
                    const std::vector<bool>& suspected) {
  Explanation result;
  // One or two bad pairs are too few to blame the whole network.
  result.everything = good.empty() && bad.size() >= 3 && !most_bad_links(nodes, bad);
  if (bad.empty() || result.everything) return result;
  std::vector<Pair> open(bad.begin(), bad.end());
  const auto name = [&](int node) {
    result.nodes.push_back(node);
    forget(open, node);
  };
  if (!good.empty()) {
    for (const int node : without_good_pair(nodes, bad, good)) name(node);
  }
  while (const auto node = most_bad_links(nodes, open)) name(*node);
  for (int node = 0; node < static_cast<int>(suspected.size()); ++node) {
    const bool explains = suspected[at(node)] && has_healthy_peer(node, open, suspected);
    if (explains) name(node);
  }
  std::sort(result.nodes.begin(), result.nodes.end());
  std::sort(open.begin(), open.end());
  open.erase(std::unique(open.begin(), open.end()), open.end());
  result.links = std::move(open);
  return result;
}

std::vector<bool> slow_nodes(int nodes, std::span<const PairResult> results, const PeerRule& rule,
                             const Classes& classes) {
  std::vector<bool> slow(at(nodes), false);
  for (const auto direction : {Direction::send, Direction::receive}) {
    const auto best = best_speeds(nodes, results, direction, classes);
    std::map<int, std::vector<double>> speeds;
    for (int node = 0; node < nodes; ++node) {
      if (best[at(node)]) speeds[class_of(classes, node)].push_back(*best[at(node)]);
    }
    std::map<int, std::optional<PeerThresholds>> thresholds;
    for (const auto& [number, values] : speeds) thresholds[number] = peer_thresholds(values, rule);
    for (int node = 0; node < nodes; ++node) {
      const auto& limit = thresholds[class_of(classes, node)];
      if (best[at(node)] && limit && *best[at(node)] < limit->warning) slow[at(node)] = true;
    }
  }
  return slow;
}

std::vector<Pair> lossy_pairs(std::span<const PairResult> results) {
  std::set<Pair> pairs;
  for (const auto& result : results) {
    if (result.measured() && result.lost >= kLossy) pairs.insert(result.pair);
  }
  return {pairs.begin(), pairs.end()};
}

}  // namespace ddp::check
