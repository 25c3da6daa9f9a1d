// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/locate/pair_schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace ddp::check {
namespace {

// Replaces std::shuffle, whose result may differ between standard libraries. The same seed must
// always give the same plan.
template <class T>
void shuffle(std::vector<T>& values, std::mt19937_64& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
}

int seats_of(int nodes) {
  return nodes + nodes % 2;  // the last seat is empty if the number of nodes is odd
}

// Computes the r-th round independently of the others, because all rounds of thousands of nodes
// would not fit in memory.
Round circle_round(int nodes, int r) {
  const int moving = seats_of(nodes) - 1;
  const auto seated_at = [&](int seat) {
    return seat == 0 ? 0 : 1 + (seat - 1 - r + moving) % moving;
  };
  Round round;
  for (int seat = 0; seat < (moving + 1) / 2; ++seat) {
    const Pair pair = make_pair_of(seated_at(seat), seated_at(moving - seat));
    if (pair.b < nodes) round.push_back(pair);
  }
  return round;
}

// Adds rounds for nodes that rest in all of them, so that every node is measured.
void give_each_a_partner(int nodes, std::vector<Round>& rounds) {
  std::vector<bool> paired(static_cast<std::size_t>(nodes), false);
  for (const auto& round : rounds) {
    for (const auto& [a, b] : round) {
      paired[static_cast<std::size_t>(a)] = paired[static_cast<std::size_t>(b)] = true;
    }
  }
  for (int node = 0; node < nodes && nodes > 1; ++node) {
    if (!paired[static_cast<std::size_t>(node)]) {
      rounds.push_back({make_pair_of(node, node == 0 ? 1 : 0)});
    }
  }
}

}  // namespace

Pair make_pair_of(int one, int other) noexcept {
  return {std::min(one, other), std::max(one, other)};
}

std::vector<Round> all_rounds(int nodes) {
  if (nodes < 2) return {};
  std::vector<Round> rounds;
  for (int r = 0; r + 1 < seats_of(nodes); ++r) rounds.push_back(circle_round(nodes, r));
  return rounds;
}

std::vector<Round> random_rounds(int nodes, int count, std::uint64_t seed) {
  if (nodes < 2) return {};
  std::mt19937_64 random(seed);
  std::vector<int> seated(static_cast<std::size_t>(nodes));
  std::iota(seated.begin(), seated.end(), 0);
  shuffle(seated, random);
  std::vector<int> numbers(static_cast<std::size_t>(seats_of(nodes) - 1));
  std::iota(numbers.begin(), numbers.end(), 0);
  shuffle(numbers, random);
  if (numbers.size() > static_cast<std::size_t>(count)) {
    numbers.resize(static_cast<std::size_t>(count));
  }
  std::vector<Round> rounds;
  for (const int number : numbers) {
    rounds.push_back(circle_round(nodes, number));
    for (auto& pair : rounds.back()) {
      pair = make_pair_of(seated[static_cast<std::size_t>(pair.a)],
                          seated[static_cast<std::size_t>(pair.b)]);
    }
  }
  return rounds;
}

std::uint64_t seed_for(std::string_view identity) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : identity) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return 1 + hash % 999'999'999;
}

std::vector<Round> plan_rounds(int nodes, std::uint64_t seed) {
  return nodes <= kMaxNodesForAllPairs ? all_rounds(nodes)
                                       : random_rounds(nodes, kSampledRounds, seed);
}

void shuffle_nodes(std::vector<int>& nodes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  shuffle(nodes, random);
}

std::vector<Round> plan_class_rounds(int nodes, const std::vector<int>& classes, int rounds,
                                     std::uint64_t seed) {
  const auto plan = [&](int count) {
    return rounds > 0 ? random_rounds(count, rounds, seed) : plan_rounds(count, seed);
  };
  std::map<int, std::vector<int>> members;
  for (int node = 0; node < static_cast<int>(classes.size()); ++node) {
    members[classes[static_cast<std::size_t>(node)]].push_back(node);
  }
  std::vector<Round> all;
  if (members.size() < 2 || nodes <= kMaxNodesForAllPairs) {
    all = plan(nodes);
    give_each_a_partner(nodes, all);
    return all;
  }
  for (const auto& [number, names] : members) {
    const auto own = plan(static_cast<int>(names.size()));
    all.resize(std::max(all.size(), own.size()));
    for (std::size_t r = 0; r < own.size(); ++r) {
      for (const auto& [a, b] : own[r]) {
        all[r].push_back(
            make_pair_of(names[static_cast<std::size_t>(a)], names[static_cast<std::size_t>(b)]));
      }
    }
  }
  for (auto& round : random_rounds(nodes, 1, seed)) all.push_back(std::move(round));
  give_each_a_partner(nodes, all);
  return all;
}

}  // namespace ddp::check
