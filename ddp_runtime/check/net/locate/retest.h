// SPDX-License-Identifier: Apache-2.0
// The retest of nodes and links that seem slow, lossy or late to answer: a number of measurements
// that is fixed in advance, each taken while good pairs run at the same time.
//
// The rounds measure many pairs at once, and any other load on a machine slows some of them. So a
// suspect is judged by ratios: its speed divided by the speed of the good pairs at the same moment.
// The median of the ratios is the estimate, and its standard error determines the outcome: a
// suspect below the threshold by a margin of two errors is slow, a suspect above the more severe
// threshold by the same margin is cleared, and any other suspect stays undecided. Taking the best
// of several measurements would clear every suspect when the noise is large. Errors are computed on
// logarithms, because half the normal speed and twice the normal speed are equally unusual, and
// because occasional fast measurements must not make it less certain that a node is fast.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"

namespace ddp::check {

// One measurement of a suspect.
struct Try {
  double send = 0;     // bytes per second that the node sends; for a link, from a to b
  double receive = 0;  // bytes per second that it receives; for a link, from b to a
  double lost = 0;     // lost fraction of the data
  double latency_seconds = 0;
  // Median speed of the good pairs measured at the same time.
  double beside = 0;
  double beside_latency_seconds = 0;
};

struct Retest {
  std::optional<int> node = {};  // the suspect, if it is a node
  Pair link = {};                // the suspect, if it is a link between two nodes
  bool lossy = false;            // the link lost data in the rounds
  std::vector<Try> tries = {};
  std::vector<double> references = {};  // bytes per second of good pairs, both directions
  // Each reference relative to the others at the same moment.
  std::vector<double> reference_ratios = {};
  // Standard deviation of the logarithm of one measurement, from the references or from the rounds,
  // whichever is larger.
  double noise = 0;

  // Adds a measurement of the suspect; for a node, with any partner.
  void add(const PairResult& result, double beside, double beside_latency_seconds);
};

// A speed is far below the normal speed if it is less than this fraction of it.
inline constexpr double kFarBelow = 0.5;
// A node is late if its latency is this many times that of other nodes. Latencies of healthy nodes
// differ by less, because of the switches between them.
inline constexpr double kLate = 3;

inline constexpr int kMinTries = 9;
inline constexpr int kMaxTries = 17;
inline constexpr int kTriesInVain = 5;
// The required certainty of a judgment, in standard errors.
inline constexpr double kMargin = 2;

// The number of times to measure each suspect: enough to detect a node that is slow by `critical`,
// given the noise of a single measurement, but at most kMaxTries. Returns kTriesInVain, which still
// find stalled nodes, if even half the speed is hidden in the noise.
int tries_for(double noise, const PeerRule& rule);

// The smallest slowdown, as a fraction, that is found in 19 of 20 retests of `tries` measurements.
double retest_limit(double noise, int tries, const PeerRule& rule);

// The speed of the suspect in one direction relative to good pairs.
struct Estimate {
  double ratio = 0;  // median of the tries
  double error = 0;  // standard error of its logarithm
  // The bounds of the ratio: kMargin errors below and above it.
  double lowest() const;
  double highest() const;
};
// Returns nullopt if there are no tries.
std::optional<Estimate> estimate(const Retest& retest, Direction direction);

// The number of tries that were far below the normal speed: less than half of it, and by more than
// the noise explains. The larger number of both directions.
int tries_far_below(const Retest& retest, const PeerRule& rule);

// `noisy`: the noise is too large to decide whether the suspect is slow. `undecided`: slower than
// good pairs, but possibly not slow enough to be bad. `unsteady`: normal in most tries and far
// below normal in others, more often than good pairs.
enum class Outcome : std::uint8_t { untested, cleared, noisy, undecided, unsteady, slow };
Outcome outcome(const Retest& retest, Direction direction, const PeerRule& rule);
// The worse of both directions.
Outcome outcome(const Retest& retest, const PeerRule& rule);

// OK unless the direction is slow; the estimate determines the severity.
Severity severity_of(const Retest& retest, Direction direction, const PeerRule& rule);

// Whether the remaining tries can be skipped because all tries so far stalled.
bool hopeless(const Retest& retest, const PeerRule& rule);

// Whether the link lost data in the rounds and in nearly all tries since.
bool keeps_losing(const Retest& retest);

// Whether the link is unsteady, lost data in the rounds, and lost data in every try that was far
// below, so that the loss explains its speed.
bool loses_at_times(const Retest& retest, const PeerRule& rule);

// The suspect's latency divided by that of the good pairs at the same moment. Returns nullopt
// unless nearly all tries agree that it is late.
std::optional<double> late_by(const Retest& retest);

// The largest slowdown, as a fraction, that the noise may hide in a node whose outcome is `noisy`;
// the larger of both directions. Returns 0 for any other outcome.
double hidden_by_noise(const Retest& retest, const PeerRule& rule);

}  // namespace ddp::check
