// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/locate/screen.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "ddp_runtime/check/net/locate/retest.h"

namespace ddp::check {
namespace {

// A node is retested if its best speed is this many standard deviations below the median.
constexpr double kSuspicious = 2.5;
// The limit for pairs is higher, because a pair has one measurement and a node has several.
constexpr double kSuspiciousPair = 3.5;
constexpr std::size_t kManyPeers = 16;
// The lower quartile of the differences between two normally distributed values, in units of their
// standard deviation (Rousseeuw and Croux).
constexpr double kQuartileOfDifferences = 0.4506;
// Larger noise is treated as this value, because no difference can be detected above it.
constexpr double kMaxNoise = 0.5;
constexpr int kOftenFarBelow = 2;
constexpr double kLeastLateSeconds = 5e-6;
constexpr std::size_t kMaxPairs = 64;

std::size_t index(int node) {
  return static_cast<std::size_t>(node);
}

double deviation_of(std::span<const double> values, double middle) {
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::abs(value - middle));
  return 1.4826 * median(deviations);
}

// The standard deviation of the maximum of some normally distributed values, relative to that of
// one value; an approximation within 3 % up to ten values.
double spread_of_best(double count) {
  return 1 / std::sqrt(1 + 0.8 * std::log(std::max(1.0, count)));
}

struct Level {
  double median = 0;
  double threshold = 0;
  double spread = 0;
};

Level level_of(std::span<const double> values, double spread, double least, double deviations) {
  const double middle = median(values);
  const double below =
      std::max(std::min(deviations * spread, kWidestSpread * middle), least * middle);
  return {middle, middle - below, spread};
}

// Computed from the best speeds of some nodes. The spread of a few nodes is unreliable, so the
// noise of their many exchanges limits it.
Level node_level(std::span<const double> best, double noise_of_best, const PeerRule& rule) {
  const double middle = median(best);
  double spread = deviation_of(best, middle);
  if (best.size() < kManyPeers) spread = std::min(spread, noise_of_best * middle);
  return level_of(best, spread, rule.warning, kSuspicious);
}

class Screening {
 public:
  Screening(int nodes, std::span<const PairResult> results, const PeerRule& rule,
            const Classes& classes)
      : nodes_(nodes), results_(results), rule_(rule), classes_(classes) {
    found_.nodes.assign(index(nodes), false);
    found_.noise = exchange_noise(nodes, results, classes);
    noise_of_best_ = found_.noise *
                     spread_of_best(2.0 * static_cast<double>(results.size()) / std::max(1, nodes));
  }

  Screen run() {
    for (const auto direction : {Direction::send, Direction::receive}) look_at_nodes(direction);
    look_at_latencies();
    look_at_pairs();
    return std::move(found_);
  }

 private:
  // Levels by class, for classes with enough nodes.
  template <class ValueOf>
  std::map<int, std::vector<double>> values_by_class(const ValueOf& value_of) const {
    std::map<int, std::vector<double>> values;
    for (int node = 0; node < nodes_; ++node) {
      if (const std::optional<double> value = value_of(node)) {
        values[class_of(classes_, node)].push_back(*value);
      }
    }
    std::erase_if(values, [](const auto& entry) { return entry.second.size() < kMinPeers; });
    return values;
  }

  void look_at_nodes(Direction direction) {
    const auto best = best_speeds(nodes_, results_, direction, classes_);
    const auto values = values_by_class([&best](int node) { return best[index(node)]; });
    std::map<int, Level> levels;
    for (const auto& [number, speeds] : values) {
      const Level level = node_level(speeds, noise_of_best_, rule_);
      levels[number] = level;
      const double spread =
          std::min(std::max(level.spread / level.median, noise_of_best_), kMaxNoise);
      const double limit = 1 - level.threshold / (level.median * (1 + kNineteenOfTwenty * spread));
      found_.limit = std::max(found_.limit.value_or(0), limit);
    }
    for (int node = 0; node < nodes_; ++node) {
      const auto level = levels.find(class_of(classes_, node));
      if (level == levels.end() || !best[index(node)]) continue;
      if (*best[index(node)] < level->second.threshold) found_.nodes[index(node)] = true;
    }
  }

  // Finds nodes that are slow to answer all of their partners.
  void look_at_latencies() {
    std::vector<std::optional<double>> lowest(index(nodes_));
    for (const auto& result : results_) {
      if (!result.measured() || result.latency_seconds <= 0) continue;
      for (const int node : {result.pair.a, result.pair.b}) {
        auto& value = lowest[index(node)];
        value = std::min(value.value_or(result.latency_seconds), result.latency_seconds);
      }
    }
    const auto values = values_by_class([&lowest](int node) { return lowest[index(node)]; });
    std::map<int, double> medians;
    for (const auto& [number, seconds] : values) medians[number] = median(seconds);
    for (int node = 0; node < nodes_; ++node) {
      const auto own = medians.find(class_of(classes_, node));
      if (own == medians.end() || !lowest[index(node)]) continue;
      const double usual = own->second;
      const double mine = *lowest[index(node)];
      if (mine > kLate * usual && mine - usual > kLeastLateSeconds)
        found_.nodes[index(node)] = true;
    }
  }

  // The slower direction of each pair, in its best exchange.
  std::map<Pair, double> best_of_pairs() const {
    std::map<Pair, double> best;
    for (const auto& result : results_) {
      if (!result.measured()) continue;
      double& value = best[result.pair];
      value = std::max(value, std::min(result.a_to_b, result.b_to_a));
    }
    return best;
  }

  void look_at_pairs() {
    const auto best = best_of_pairs();
    std::map<int, std::vector<double>> speeds;
    for (const auto& [pair, speed] : best) speeds[class_of(classes_, pair)].push_back(speed);
    std::map<int, Level> levels;
    for (const auto& [number, values] : speeds) {
      if (values.size() < kMinPeers) continue;
      levels[number] =
          level_of(values, deviation_of(values, median(values)), rule_.critical, kSuspiciousPair);
    }
    const auto relative = [&](const Pair& pair, double speed) {
      return speed / levels.at(class_of(classes_, pair)).median;
    };
    std::vector<std::pair<double, Pair>> slow;
    std::map<int, int> often;
    for (const auto& [pair, speed] : best) {
      const auto level = levels.find(class_of(classes_, pair));
      if (level == levels.end() || speed >= level->second.threshold) continue;
      if (found_.nodes[index(pair.a)] || found_.nodes[index(pair.b)]) continue;
      slow.emplace_back(relative(pair, speed), pair);
      if (relative(pair, speed) >= kFarBelow) continue;
      ++often[pair.a];
      ++often[pair.b];
    }
    // A node that is far below the normal speed with several partners is a suspect itself, even if
    // it is fast with others.
    for (const auto& [node, times] : often) {
      if (times >= kOftenFarBelow) found_.nodes[index(node)] = true;
    }
    std::sort(slow.begin(), slow.end());
    if (slow.size() > kMaxPairs + index(nodes_) / 4) slow.resize(kMaxPairs + index(nodes_) / 4);
    for (const auto& [speed, pair] : slow) {
      if (!found_.nodes[index(pair.a)] && !found_.nodes[index(pair.b)]) {
        found_.pairs.push_back(pair);
      }
    }
    std::sort(found_.pairs.begin(), found_.pairs.end());
  }

  int nodes_;
  std::span<const PairResult> results_;
  const PeerRule& rule_;
  const Classes& classes_;
  double noise_of_best_ = 0;
  Screen found_;
};

}  // namespace

double exchange_noise(int nodes, std::span<const PairResult> results, const Classes& classes) {
  std::vector<std::vector<double>> send(index(nodes));
  std::vector<std::vector<double>> receive(index(nodes));
  for (const auto& result : results) {
    if (!result.measured()) continue;
    const auto& [a, b] = result.pair;
    if (class_of(classes, a) == class_of(classes, result.pair)) {
      send[index(a)].push_back(result.a_to_b);
      receive[index(a)].push_back(result.b_to_a);
    }
    if (class_of(classes, b) == class_of(classes, result.pair)) {
      send[index(b)].push_back(result.b_to_a);
      receive[index(b)].push_back(result.a_to_b);
    }
  }
  std::vector<double> differences;
  for (const auto* directions : {&send, &receive}) {
    for (const auto& speeds : *directions) {
      for (std::size_t i = 0; i < speeds.size(); ++i) {
        for (std::size_t j = i + 1; j < speeds.size(); ++j) {
          differences.push_back(2 * std::abs(speeds[i] - speeds[j]) / (speeds[i] + speeds[j]));
        }
      }
    }
  }
  if (differences.empty()) return 0;
  const auto quartile = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 4);
  std::nth_element(differences.begin(), quartile, differences.end());
  return std::min(*quartile / kQuartileOfDifferences, kMaxNoise);
}

Screen screen(int nodes, std::span<const PairResult> results, const PeerRule& rule,
              const Classes& classes) {
  return Screening(nodes, results, rule, classes).run();
}

std::optional<double> detection_limit(int nodes, std::span<const PairResult> results,
                                      const PeerRule& rule, const Classes& classes) {
  const Screen seen = screen(nodes, results, rule, classes);
  if (!seen.limit) return std::nullopt;
  return std::max(*seen.limit, retest_limit(seen.noise, tries_for(seen.noise, rule), rule));
}

}  // namespace ddp::check
