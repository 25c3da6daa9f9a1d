// SPDX-License-Identifier: Apache-2.0
// The retest of nodes and links that seem slow, lossy or late to answer: a number of measurements
// that is fixed in advance, each taken while good pairs run beside it.
//
// The rounds measure many pairs at once, and any other load on a machine slows some of them. So a
// suspect is judged by ratios: its speed divided by the speed of the good pairs at the same moment.
// The median of the ratios is the estimate, and its standard error decides what can be said: a
// suspect below the threshold by a margin of two errors is slow, one above the graver threshold by
// the same margin is cleared, and anything in between stays undecided. Taking the best of several
// measurements would clear every suspect when the noise is large. Errors are computed on
// logarithms: half the speed and twice the speed are equally far from the usual, and a node that is
// occasionally several times as fast is not less certain to be fast.
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
  double lost = 0;     // fraction of the data
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
  // Standard deviation of the logarithm of one measurement: from the references, or from the rounds
  // if that is larger.
  double noise = 0;

  // Another measurement of the suspect; for a node, with any partner.
  void add(const PairResult& result, double beside, double beside_latency_seconds);
};

// "Far below" is less than this fraction of the speed.
inline constexpr double kFarBelow = 0.5;
// A node is late if it takes this many times as long as others to answer. Latencies of healthy
// nodes differ because of the switches in between, by less than this.
inline constexpr double kLate = 3;

inline constexpr int kMinTries = 9;
inline constexpr int kMaxTries = 17;
inline constexpr int kTriesInVain = 5;
// How certain a judgment must be, in standard errors.
inline constexpr double kMargin = 2;

// How often to measure suspects: enough for a node that is slow by `critical` to stand out from
// this noise of a single measurement, if kMaxTries suffice. If not even half the speed stands out
// from the noise, kTriesInVain remain, to find stalled nodes.
int tries_for(double noise, const PeerRule& rule);

// How much slower, as a fraction, a node must be to be found in 19 of 20 retests of `tries`
// measurements.
double retest_limit(double noise, int tries, const PeerRule& rule);

// A direction of the suspect relative to good pairs. Returns nullopt without a try.
struct Estimate {
  double ratio = 0;  // median of the tries
  double error = 0;  // standard error of its logarithm
  // The bounds of the ratio, with the margin that a judgment needs.
  double lowest() const;
  double highest() const;
};
std::optional<Estimate> estimate(const Retest& retest, Direction direction);

// How many tries were far below the usual speed: less than half of it, and out of reach of the
// noise. The larger number of both directions.
int tries_far_below(const Retest& retest, const PeerRule& rule);

// `noisy`: the noise is too large to say whether it is slow. `undecided`: slower than good pairs,
// but not known whether slow enough to be bad. `unsteady`: fine in most tries and far below in
// others, more often than good pairs are.
enum class Outcome : std::uint8_t { untested, cleared, noisy, undecided, unsteady, slow };
Outcome outcome(const Retest& retest, Direction direction, const PeerRule& rule);
// The worse of both directions.
Outcome outcome(const Retest& retest, const PeerRule& rule);

// OK unless the direction is slow; the estimate determines the severity.
Severity severity_of(const Retest& retest, Direction direction, const PeerRule& rule);

// Whether the remaining tries can be skipped because some were all hopeless.
bool hopeless(const Retest& retest, const PeerRule& rule);

// Whether the link lost data in the rounds and in nearly all tries since.
bool keeps_losing(const Retest& retest);

// How many times as long as the good pairs at the same time the suspect took to answer; nullopt
// unless nearly all tries agree that it is late.
std::optional<double> late_by(const Retest& retest);

// How slow, as a fraction, a node whose outcome is `noisy` may still be; the larger of both
// directions. 0 for any other outcome.
double hidden_by_noise(const Retest& retest, const PeerRule& rule);

}  // namespace ddp::check
