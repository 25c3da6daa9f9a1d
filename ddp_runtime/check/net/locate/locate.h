// SPDX-License-Identifier: Apache-2.0
// Infers the faulty nodes or links from measurements of pairs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/threshold.h"
#include "ddp_runtime/check/net/locate/pair_schedule.h"

namespace ddp::check {

// One exchange between two nodes.
struct PairResult {
  Pair pair;
  double a_to_b = 0;            // bytes per second; 0 if not measured
  double b_to_a = 0;            // bytes per second in the other direction
  double latency_seconds = 0;   // one way; 0 if not measured
  std::int64_t wrong_at_a = 0;  // bytes that arrived corrupted
  std::int64_t wrong_at_b = 0;
  double lost = 0;         // lost fraction of the sent data; the larger of both ends
  std::string via_a = {};  // interface and address at a; empty if unknown
  std::string via_b = {};
  std::string failure = {};  // reason why the exchange failed; empty if it succeeded

  bool measured() const { return failure.empty() && a_to_b > 0 && b_to_a > 0; }
  bool corrupt() const { return wrong_at_a > 0 || wrong_at_b > 0; }
};

enum class Direction : std::uint8_t { send, receive };

// Class of each node by the rate of its link; only nodes of the same class are compared. A higher
// number means a faster link; an empty list means that all links are alike.
using Classes = std::vector<int>;
int class_of(const Classes& classes, int node);
// The class of the slower end, which limits the speed of the exchange.
int class_of(const Classes& classes, const Pair& pair);

// Derives the classes from the link rates, slowest first. A node with an unknown rate is put into
// the most common class. Returns an empty list if all links are alike.
Classes classes_by_rate(const std::vector<std::optional<double>>& rates);

// Each node's speed in one direction: the best of its exchanges, because one slow partner or one
// congested moment does not make the node slow. Exchanges with nodes of a slower class do not
// count. A node without a measurement has the value nullopt.
std::vector<std::optional<double>> best_speeds(int nodes, std::span<const PairResult> results,
                                               Direction direction, const Classes& classes = {});

// The smallest set of faults that explains all bad pairs.
struct Explanation {
  bool everything = false;  // there is no good pair: the network is at fault, not a node
  std::vector<int> nodes;   // nodes to blame
  std::vector<Pair> links;  // bad pairs whose faulty end is not known
};
// Blames each node whose pairs are all bad, if it has at least two partners. Then blames, again
// with at least two partners, the node with the most unexplained bad pairs. Then blames a node that
// is `suspected` for another reason (empty, or one entry per node) if its partner is not. Reports
// the remaining pairs as links.
Explanation explain(int nodes, std::span<const Pair> bad, std::span<const Pair> good,
                    const std::vector<bool>& suspected = {});

// A pair is lossy if it loses more than this fraction of the data. TCP's own probes at the end of a
// burst stay far below this limit.
inline constexpr double kLossy = 0.001;

// Pairs that were lossy in any of their exchanges.
std::vector<Pair> lossy_pairs(std::span<const PairResult> results);

// The measured nodes, ordered by speed in their slower direction, fastest first.
std::vector<int> fastest_first(int nodes, std::span<const PairResult> results);

// For each node, whether it sends or receives more slowly than its peers. False if there are too
// few peers or no measurement.
std::vector<bool> slow_nodes(int nodes, std::span<const PairResult> results, const PeerRule& rule,
                             const Classes& classes = {});

}  // namespace ddp::check
