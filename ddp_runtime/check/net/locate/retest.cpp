// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/locate/retest.h"

#include <algorithm>
#include <cmath>

namespace ddp::check {
namespace {

// The standard error of a median of normally distributed values, relative to that of their mean.
constexpr double kMedianError = 1.2533;
// The factor by which the references of one try increase the noise of a ratio, for two or four
// pairs of references.
constexpr double kRatioNoise = 1.12;
// A speed that counts as far below must also differ from the normal speed by more than this many
// standard deviations.
constexpr double kFarOfNoise = 4;
constexpr int kMinFarBelow = 2;
// A suspect is unsteady if the probability that a good pair is equally often far below is smaller
// than this.
constexpr double kUnsteadyByLuck = 5e-4;
constexpr int kHopelessTries = 5;
// For a normal distribution: with 95 % probability, all five values are less than this many
// standard deviations above the mean.
constexpr double kAllOfFew = 2.32;
// If one packet in twenty is lost, all 64 packets (4 MiB after segmentation offload) arrive in one
// of 27 tries. The probability of three such tries out of nine is one in 250.
constexpr int kCleanTriesByLuck = 2;

std::vector<double> ratios_of(const Retest& retest, Direction direction) {
  std::vector<double> ratios;
  for (const Try& one : retest.tries) {
    if (one.beside <= 0) continue;
    ratios.push_back((direction == Direction::send ? one.send : one.receive) / one.beside);
  }
  return ratios;
}

// The ratio of a direction in which no data arrives. It is not 0, because 0 has no logarithm.
constexpr double kLeastRatio = 1e-9;

// The standard deviation of the logarithms.
double spread_of(std::span<const double> ratios, double middle) {
  std::vector<double> deviations;
  deviations.reserve(ratios.size());
  for (const double ratio : ratios) {
    deviations.push_back(std::abs(std::log(std::max(ratio, kLeastRatio) / middle)));
  }
  return 1.4826 * median(deviations);
}

// The ratio below which a try is far below the normal speed.
double far_below(const Retest& retest, const PeerRule& rule) {
  return std::min(
      {1 - kFarBelow, 1 - rule.critical, std::exp(-kFarOfNoise * kRatioNoise * retest.noise)});
}

int count_below(std::span<const double> ratios, double limit) {
  return static_cast<int>(
      std::count_if(ratios.begin(), ratios.end(), [limit](double ratio) { return ratio < limit; }));
}

// A node below this fraction of the normal speed is stalled.
double part_of_still(const PeerRule& rule) {
  return (1 - rule.critical) / 2;
}

// The probability of at least `count` hits in `tries`, each with this probability.
double chance_of(int count, int tries, double probability) {
  double below = 0;
  double term = std::pow(1 - probability, tries);
  for (int i = 0; i < count; ++i) {
    below += term;
    term *= probability / (1 - probability) * (tries - i) / (i + 1);
  }
  return 1 - below;
}

// Disturbances by other traffic affect the good pairs equally often.
bool is_unsteady(const Retest& retest, Direction direction, const PeerRule& rule) {
  const auto ratios = ratios_of(retest, direction);
  const double limit = far_below(retest, rule);
  const int found = count_below(ratios, limit);
  if (found < kMinFarBelow) return false;
  const auto references = static_cast<double>(retest.reference_ratios.size());
  if (references <= 0) return false;
  const double usual = (count_below(retest.reference_ratios, limit) + 0.5) / (references + 1);
  return chance_of(found, static_cast<int>(ratios.size()), usual) < kUnsteadyByLuck;
}

// Whether every try in this direction is so slow that chance cannot be the reason.
bool stands_still(const Retest& retest, Direction direction, const PeerRule& rule) {
  const auto ratios = ratios_of(retest, direction);
  return ratios.size() >= kHopelessTries &&
         count_below(ratios, part_of_still(rule)) == static_cast<int>(ratios.size());
}

}  // namespace

void Retest::add(const PairResult& result, double beside, double beside_latency_seconds) {
  const bool forward = !node || result.pair.a == *node;
  tries.push_back({.send = forward ? result.a_to_b : result.b_to_a,
                   .receive = forward ? result.b_to_a : result.a_to_b,
                   .lost = result.lost,
                   .latency_seconds = result.latency_seconds,
                   .beside = beside,
                   .beside_latency_seconds = beside_latency_seconds});
}

int tries_for(double noise, const PeerRule& rule) {
  for (int tries = kMinTries; tries < kMaxTries; ++tries) {
    if (retest_limit(noise, tries, rule) <= rule.coarsest()) return tries;
  }
  // If no allowed number of tries is enough, more tries only take time.
  if (retest_limit(noise, kMaxTries, rule) <= rule.coarsest()) return kMaxTries;
  const double worth_it = std::max(kFarBelow, rule.coarsest());
  return retest_limit(noise, kMinTries, rule) <= worth_it ? kMinTries : kTriesInVain;
}

double retest_limit(double noise, int tries, const PeerRule& rule) {
  if (tries < kMinTries) {
    return 1 - part_of_still(rule) * std::exp(-kAllOfFew * kRatioNoise * noise);
  }
  const double error = kMedianError * kRatioNoise * noise / std::sqrt(tries);
  return 1 - (1 - rule.warning) * std::exp(-(kMargin + kNineteenOfTwenty) * error);
}

double Estimate::lowest() const {
  return ratio * std::exp(-kMargin * error);
}

double Estimate::highest() const {
  return ratio * std::exp(kMargin * error);
}

std::optional<Estimate> estimate(const Retest& retest, Direction direction) {
  const auto ratios = ratios_of(retest, direction);
  if (ratios.empty()) return std::nullopt;
  const double ratio = std::max(median(ratios), kLeastRatio);
  const double noise = std::max(kRatioNoise * retest.noise, spread_of(ratios, ratio));
  return Estimate{ratio, kMedianError * noise / std::sqrt(static_cast<double>(ratios.size()))};
}

int tries_far_below(const Retest& retest, const PeerRule& rule) {
  const double limit = far_below(retest, rule);
  return std::max(count_below(ratios_of(retest, Direction::send), limit),
                  count_below(ratios_of(retest, Direction::receive), limit));
}

Outcome outcome(const Retest& retest, Direction direction, const PeerRule& rule) {
  const auto found = estimate(retest, direction);
  if (!found) return Outcome::untested;
  if (found->highest() < 1 - rule.warning) {
    // With few tries, the spread may be small by chance, and all tries may also be low by chance.
    const auto tries = static_cast<int>(retest.tries.size());
    const bool sure = tries >= kMinTries || stands_still(retest, direction, rule);
    return sure ? Outcome::slow : Outcome::undecided;
  }
  if (is_unsteady(retest, direction, rule)) return Outcome::unsteady;
  if (found->lowest() > 1 - rule.coarsest()) return Outcome::cleared;
  return found->highest() < 1 ? Outcome::undecided : Outcome::noisy;
}

Outcome outcome(const Retest& retest, const PeerRule& rule) {
  return std::max(outcome(retest, Direction::send, rule),
                  outcome(retest, Direction::receive, rule));
}

Severity severity_of(const Retest& retest, Direction direction, const PeerRule& rule) {
  if (outcome(retest, direction, rule) != Outcome::slow) return Severity::ok;
  return estimate(retest, direction)->ratio < 1 - rule.critical ? Severity::critical
                                                                : Severity::warning;
}

bool hopeless(const Retest& retest, const PeerRule& rule) {
  if (retest.lossy || retest.tries.size() < kHopelessTries) return false;
  return stands_still(retest, Direction::send, rule) ||
         stands_still(retest, Direction::receive, rule);
}

bool keeps_losing(const Retest& retest) {
  const auto clean = [](const Try& one) { return one.lost < kLossy; };
  return retest.lossy && !retest.tries.empty() &&
         std::count_if(retest.tries.begin(), retest.tries.end(), clean) <= kCleanTriesByLuck;
}

bool loses_at_times(const Retest& retest, const PeerRule& rule) {
  if (!retest.lossy || keeps_losing(retest) || outcome(retest, rule) != Outcome::unsteady) {
    return false;
  }
  const double limit = far_below(retest, rule);
  return std::all_of(retest.tries.begin(), retest.tries.end(), [limit](const Try& one) {
    return std::min(one.send, one.receive) >= limit * one.beside || one.lost >= kLossy;
  });
}

std::optional<double> late_by(const Retest& retest) {
  std::vector<double> ratios;
  for (const Try& one : retest.tries) {
    if (one.latency_seconds > 0 && one.beside_latency_seconds > 0) {
      ratios.push_back(one.latency_seconds / one.beside_latency_seconds);
    }
  }
  if (ratios.size() < kTriesInVain) return std::nullopt;
  std::sort(ratios.begin(), ratios.end());
  if (ratios[ratios.size() / 10] < kLate) return std::nullopt;
  return median(ratios);
}

double hidden_by_noise(const Retest& retest, const PeerRule& rule) {
  double hidden = 0;
  for (const auto direction : {Direction::send, Direction::receive}) {
    if (outcome(retest, direction, rule) != Outcome::noisy) continue;
    hidden = std::max(hidden, 1 - estimate(retest, direction)->lowest());
  }
  return hidden;
}

}  // namespace ddp::check
