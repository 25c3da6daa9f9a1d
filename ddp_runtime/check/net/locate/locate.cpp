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

// Nodes beside whom each node was part of one of the pairs.
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

// The node with the most bad partners if nobody has as many; it then has two at least, since the
// ends of a single pair have one each.
std::optional<int> most_accused(int nodes, std::span<const Pair> bad) {
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

// Nodes all of whose pairs are bad, with two partners at least.
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

bool has_innocent_partner(int node, std::span<const Pair> bad, const std::vector<bool>& suspected) {
  return std::any_of(bad.begin(), bad.end(), [&](const Pair& pair) {
    return (pair.a == node && !suspected[at(pair.b)]) || (pair.b == node && !suspected[at(pair.a)]);
  });
}

std::vector<double> present(std::span<const std::optional<double>> values) {
  std::vector<double> result;
  for (const auto& value : values) {
    if (value) result.push_back(*value);
  }
  return result;
}

// The slower direction of each pair, in its best exchange.
std::map<Pair, double> best_of_pairs(std::span<const PairResult> results) {
  std::map<Pair, double> best;
  for (const auto& result : results) {
    if (!result.measured()) continue;
    double& value = best[result.pair];
    value = std::max(value, std::min(result.a_to_b, result.b_to_a));
  }
  return best;
}

}  // namespace

std::vector<std::optional<double>> best_speeds(int nodes, std::span<const PairResult> results,
                                               Direction direction) {
  std::vector<std::optional<double>> best(at(nodes));
  const auto raise = [&best](int node, double speed) {
    auto& value = best[at(node)];
    value = std::max(value.value_or(0), speed);
  };
  for (const auto& result : results) {
    if (!result.measured()) continue;
    const bool send = direction == Direction::send;
    raise(result.pair.a, send ? result.a_to_b : result.b_to_a);
    raise(result.pair.b, send ? result.b_to_a : result.a_to_b);
  }
  return best;
}

Explanation explain(int nodes, std::span<const Pair> bad, std::span<const Pair> good,
                    const std::vector<bool>& suspected) {
  Explanation result;
  // Of one or two pairs it cannot be said that they are everything.
  result.everything = good.empty() && bad.size() >= 3 && !most_accused(nodes, bad);
  if (bad.empty() || result.everything) return result;
  std::vector<Pair> open(bad.begin(), bad.end());
  const auto name = [&](int node) {
    result.nodes.push_back(node);
    forget(open, node);
  };
  if (!good.empty()) {
    for (const int node : without_good_pair(nodes, bad, good)) name(node);
  }
  while (const auto node = most_accused(nodes, open)) name(*node);
  for (int node = 0; node < static_cast<int>(suspected.size()); ++node) {
    const bool explains = suspected[at(node)] && has_innocent_partner(node, open, suspected);
    if (explains) name(node);
  }
  std::sort(result.nodes.begin(), result.nodes.end());
  std::sort(open.begin(), open.end());
  open.erase(std::unique(open.begin(), open.end()), open.end());
  result.links = std::move(open);
  return result;
}

std::vector<bool> slow_nodes(int nodes, std::span<const PairResult> results, const PeerRule& rule) {
  std::vector<bool> slow(at(nodes), false);
  for (const auto direction : {Direction::send, Direction::receive}) {
    const auto best = best_speeds(nodes, results, direction);
    const auto thresholds = peer_thresholds(present(best), rule);
    if (!thresholds) continue;
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (best[i] && *best[i] < thresholds->warning) slow[i] = true;
    }
  }
  return slow;
}

std::vector<Pair> slow_pairs(int nodes, std::span<const PairResult> results, const PeerRule& rule) {
  const auto best = best_of_pairs(results);
  std::vector<double> speeds;
  speeds.reserve(best.size());
  for (const auto& [pair, speed] : best) speeds.push_back(speed);
  const auto thresholds = peer_thresholds(speeds, rule);
  if (!thresholds) return {};
  const auto slow = slow_nodes(nodes, results, rule);
  std::vector<Pair> pairs;
  for (const auto& [pair, speed] : best) {
    if (speed < thresholds->critical && !slow[at(pair.a)] && !slow[at(pair.b)]) {
      pairs.push_back(pair);
    }
  }
  return pairs;
}

std::vector<Pair> lossy_pairs(std::span<const PairResult> results) {
  std::set<Pair> pairs;
  for (const auto& result : results) {
    if (result.measured() && result.lost >= kLossy) pairs.insert(result.pair);
  }
  return {pairs.begin(), pairs.end()};
}

std::vector<int> fastest_first(int nodes, std::span<const PairResult> results) {
  const auto send = best_speeds(nodes, results, Direction::send);
  const auto receive = best_speeds(nodes, results, Direction::receive);
  std::vector<std::pair<double, int>> speeds;
  for (int node = 0; node < nodes; ++node) {
    if (send[at(node)] && receive[at(node)]) {
      speeds.emplace_back(-std::min(*send[at(node)], *receive[at(node)]), node);
    }
  }
  std::sort(speeds.begin(), speeds.end());
  std::vector<int> order;
  order.reserve(speeds.size());
  for (const auto& [speed, node] : speeds) order.push_back(node);
  return order;
}

}  // namespace ddp::check
