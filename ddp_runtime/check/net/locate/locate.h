// From measurements of pairs to the nodes or links that explain them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/locate/pair_schedule.h"
#include "ddp_runtime/check/net/locate/threshold.h"

namespace ddp::check {

// One exchange between two nodes.
struct PairResult {
  Pair pair;
  double a_to_b = 0;            // bytes per second; 0 if not measured
  double b_to_a = 0;            // likewise
  double latency_seconds = 0;   // one way; 0 if not measured
  std::int64_t wrong_at_a = 0;  // bytes that arrived changed
  std::int64_t wrong_at_b = 0;
  double lost = 0;         // part of what one of them sent, the larger of the two
  std::string via_a = {};  // interface and address at a; empty if not known
  std::string via_b = {};
  std::string failure = {};  // why the exchange did not finish; empty if it did

  bool measured() const { return failure.empty() && a_to_b > 0 && b_to_a > 0; }
  bool corrupt() const { return wrong_at_a > 0 || wrong_at_b > 0; }
};

enum class Direction : std::uint8_t { send, receive };

// Nodes by the rate of their links: those of one class are compared with each other only. A higher
// number is a faster link; an empty list means that all are alike.
using Classes = std::vector<int>;
int class_of(const Classes& classes, int node);
// Of the slower end, which bounds what the two can exchange.
int class_of(const Classes& classes, const Pair& pair);

// From the rates of the nodes' links, from the slowest on. A node whose rate is not known counts as
// what most are. Empty if all are alike.
Classes classes_by_rate(const std::vector<std::optional<double>>& rates);

// What one direction of a node can do: the best of its exchanges, because one slow partner or one
// congested moment says nothing about the node. Exchanges with nodes of a slower class do not
// count. Nothing for nodes without a measurement.
std::vector<std::optional<double>> best_speeds(int nodes, std::span<const PairResult> results,
                                               Direction direction, const Classes& classes = {});

// Who is behind a set of bad pairs, by the smallest explanation.
struct Explanation {
  bool everything = false;  // no pair at all was good: the network, not a node
  std::vector<int> nodes;   // named nodes
  std::vector<Pair> links;  // bad pairs whose bad end cannot be told
};
// A node is named if all its pairs are bad, with two partners at least; then whoever has the most
// bad pairs that are not explained yet, again with two partners at least; then a node that is
// `suspected` for another reason (none, or one entry for each node) while its partner is not. What
// remains are links.
Explanation explain(int nodes, std::span<const Pair> bad, std::span<const Pair> good,
                    const std::vector<bool>& suspected = {});

// Part of the data lost from which on a pair counts as lossy. TCP's own probes at the end of
// a burst stay far below.
inline constexpr double kLossy = 0.001;

// Pairs that lost packets in one of their exchanges.
std::vector<Pair> lossy_pairs(std::span<const PairResult> results);

// The nodes by their speed in their slower direction, fastest first; without those not measured.
std::vector<int> fastest_first(int nodes, std::span<const PairResult> results);

// For each node whether it sends or receives slower than its peers; false where there are too few
// peers or no measurement.
std::vector<bool> slow_nodes(int nodes, std::span<const PairResult> results, const PeerRule& rule,
                             const Classes& classes = {});

}  // namespace ddp::check
