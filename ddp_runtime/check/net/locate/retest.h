// The second look at whoever seems slow, lossy or late to answer: measured again a number of times
// that is fixed before the first, each time beside pairs that are good.
//
// The rounds measure many pairs at once, and whatever else a machine does slows some of them. So a
// suspect is judged by ratios: what it reached, divided by what the good pairs reached at the same
// moment. Their median is the estimate, and its standard error says what can be decided: below the
// threshold by a margin of two errors is slow, above the graver threshold by as much is cleared,
// and in between nobody knows. The best of several would acquit everybody when the noise is large.
// Errors are those of logarithms: half of the speed and twice the speed are equally far from what
// is usual, and a node that is several times as fast now and then is not less sure to be fast.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"

namespace ddp::check {

// One measurement of a suspect.
struct Try {
  double send = 0;     // bytes per second that the node sends; of a link from a to b
  double receive = 0;  // likewise receives; of a link from b to a
  double lost = 0;     // part of the data
  double latency_seconds = 0;
  // What the good pairs beside it reached, the median.
  double beside = 0;
  double beside_latency_seconds = 0;
};

struct Retest {
  std::optional<int> node = {};  // the suspect: a node, or
  Pair link = {};                // the link between two
  bool lossy = false;            // the link lost data in the rounds
  std::vector<Try> tries = {};
  std::vector<double> references = {};  // bytes per second of good pairs, both directions
  // Each of them as a part of those beside it.
  std::vector<double> reference_ratios = {};
  // Standard deviation of one measurement's logarithm: theirs, or the larger one of the rounds.
  double noise = 0;

  // One more measurement of the suspect; of a node with any partner.
  void add(const PairResult& result, double beside, double beside_latency_seconds);
};

// "Far below" is less than this part of the speed.
inline constexpr double kFarBelow = 0.5;
// How many times as long as others somebody takes to answer who is late. Latencies of healthy nodes
// differ by the switches in between, which is less.
inline constexpr double kLate = 3;

inline constexpr int kMinTries = 9;
inline constexpr int kMaxTries = 17;
inline constexpr int kTriesInVain = 5;
// How sure a judgment must be, in standard errors.
inline constexpr double kMargin = 2;

// How often to measure suspects: so often that a node which is slow by `critical` stands out of
// this noise of one measurement, if kMaxTries are enough. In noise from which not even half of the
// speed stands out kTriesInVain are left, to find those that stand still.
int tries_for(double noise, const PeerRule& rule);

// Part by which a node must be slower to be found slow in 19 of 20 retests of `tries` measurements.
double retest_limit(double noise, int tries, const PeerRule& rule);

// A direction of the suspect as a part of what good pairs reach. Nothing without a try.
struct Estimate {
  double ratio = 0;  // median of the tries
  double error = 0;  // standard error of its logarithm
  // What it may be, by the margin that a judgment needs.
  double lowest() const;
  double highest() const;
};
std::optional<Estimate> estimate(const Retest& retest, Direction direction);

// How many tries were far below what is usual: less than half of the speed, and out of reach of the
// noise. The larger number of both directions.
int tries_far_below(const Retest& retest, const PeerRule& rule);

// `noisy`: perhaps slow, perhaps as fast as good pairs, like everybody else in this noise.
// `undecided`: slower than good pairs, and whether it is slow enough to be bad cannot be told.
// `unsteady`: fine in most tries and far below in others, more often than good pairs are.
enum class Outcome : std::uint8_t { untested, cleared, noisy, undecided, unsteady, slow };
Outcome outcome(const Retest& retest, Direction direction, const PeerRule& rule);
// The graver of both directions.
Outcome outcome(const Retest& retest, const PeerRule& rule);

// OK unless the direction is slow; how grave is said by the estimate.
Severity severity_of(const Retest& retest, Direction direction, const PeerRule& rule);

// Whether the rest of the tries can be left out, because all of some are hopeless.
bool hopeless(const Retest& retest, const PeerRule& rule);

// Whether the link lost data in the rounds and in nearly all tries since.
bool keeps_losing(const Retest& retest);

// How many times as long as the good pairs beside it the suspect took to answer; nothing unless
// nearly all tries say so.
std::optional<double> late_by(const Retest& retest);

// Part by which the node, whose outcome is `noisy`, may be slow for all that is known; the larger
// one of both directions. 0 for any other.
double hidden_by_noise(const Retest& retest, const PeerRule& rule);

}  // namespace ddp::check
