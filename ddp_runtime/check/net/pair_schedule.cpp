#include "ddp_runtime/check/net/pair_schedule.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace ddp::check {
namespace {

// Not std::shuffle, whose result may differ between standard libraries: one plan for one seed.
template <class T>
void shuffle(std::vector<T>& values, std::mt19937_64& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
}

}  // namespace

Pair make_pair_of(int one, int other) noexcept {
  return {std::min(one, other), std::max(one, other)};
}

std::vector<Round> all_rounds(int nodes) {
  if (nodes < 2) return {};
  const int seats = nodes + nodes % 2;  // the last seat is empty when their number is odd
  std::vector<int> circle(static_cast<std::size_t>(seats));
  std::iota(circle.begin(), circle.end(), 0);
  std::vector<Round> rounds;
  for (int r = 0; r + 1 < seats; ++r) {
    Round round;
    for (std::size_t i = 0; i < circle.size() / 2; ++i) {
      const Pair pair = make_pair_of(circle[i], circle[circle.size() - 1 - i]);
      if (pair.b < nodes) round.push_back(pair);
    }
    rounds.push_back(std::move(round));
    std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
  }
  return rounds;
}

std::vector<Round> random_rounds(int nodes, int count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> seated(static_cast<std::size_t>(std::max(nodes, 0)));
  std::iota(seated.begin(), seated.end(), 0);
  shuffle(seated, random);
  std::vector<Round> rounds = all_rounds(nodes);
  shuffle(rounds, random);
  if (rounds.size() > static_cast<std::size_t>(count))
    rounds.resize(static_cast<std::size_t>(count));
  for (auto& round : rounds) {
    for (auto& pair : round) {
      pair = make_pair_of(seated[static_cast<std::size_t>(pair.a)],
                          seated[static_cast<std::size_t>(pair.b)]);
    }
  }
  return rounds;
}

std::vector<Round> plan_rounds(int nodes, std::uint64_t seed) {
  return nodes <= kMostNodesForAllPairs ? all_rounds(nodes)
                                        : random_rounds(nodes, kSampledRounds, seed);
}

}  // namespace ddp::check
