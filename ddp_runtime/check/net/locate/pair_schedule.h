// Which nodes exchange data with which, and when: the circle method of round-robin tournaments.
//
// Node 0 keeps its seat, the others move one seat on each round, and opposite seats play. With an
// even number n of nodes n - 1 rounds of n / 2 disjoint pairs meet every pair exactly once; an odd
// number gets an empty seat, so each node rests in one of n rounds. All pairs of a round run at
// once, so the cost is the number of rounds, whatever the number of nodes.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ddp::check {

// Positions in the list of nodes, a < b.
struct Pair {
  int a = 0;
  int b = 0;
  auto operator<=>(const Pair&) const = default;  // NOLINT(modernize-use-nullptr)
};

Pair make_pair_of(int one, int other) noexcept;

using Round = std::vector<Pair>;

// Every pair of `nodes` nodes once.
std::vector<Round> all_rounds(int nodes);

// `count` different rounds of the circle after shuffling the nodes, or all if there are fewer.
// Three rounds in which each node is judged by its best name the bad nodes in 94 % of fleets of 256
// with 8 bad nodes, and neighbors that always meet each other name none: with one partner nobody
// can tell which of the two is bad.
std::vector<Round> random_rounds(int nodes, int count, std::uint64_t seed);

// A seed of at most nine digits from what names a job step. Each job measures other pairs, so that
// what one of them does not see the next ones do.
std::uint64_t seed_for(std::string_view identity);

inline constexpr int kMaxNodesForAllPairs = 8;
inline constexpr int kSampledRounds = 3;

// All pairs of a few nodes, three random rounds of many.
std::vector<Round> plan_rounds(int nodes, std::uint64_t seed);

// Likewise, or `rounds` random ones unless it is 0, of nodes that are compared only with those of
// the same class: each class plays among itself, then one round mixes all. `classes` may be empty.
std::vector<Round> plan_class_rounds(int nodes, const std::vector<int>& classes, int rounds,
                                     std::uint64_t seed);

// In an order that depends on the seed only.
void shuffle_nodes(std::vector<int>& nodes, std::uint64_t seed);

}  // namespace ddp::check
