// SPDX-License-Identifier: Apache-2.0
// Thresholds for slow nodes, relative to the peers in the same run and to the link's rate.
//
// The peer rule is median - max(3.5 * 1.4826 * MAD, a fraction of the median). The MAD alone flags
// a healthy node in one run of twelve, and three standard deviations can never flag anything among
// fewer than eleven nodes; with a floor of 10 % of the median, there were no false alarms in
// simulated clusters of 4 to 128 nodes. A node below a quarter of the median is slow, no matter how
// noisy the cluster is. A cluster that is slow as a whole passes every peer rule, so a second rule
// uses the link's rate.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

// Undefined for an empty list.
double median(std::span<const double> values);

inline constexpr std::size_t kMinPeers = 4;

// With few nodes and much noise, the MAD may exceed the median, and then no node would ever be
// slow.
inline constexpr double kWidestSpread = 0.75;  // as a fraction of the median

// For a normal distribution: 95 % lie less than this many standard deviations above the mean.
inline constexpr double kNineteenOfTwenty = 1.645;

// Fractions of the median that a speed must lose to be reported as slow.
struct PeerRule {
  double warning = 0.10;
  double critical = 0.20;

  // The largest slowdown that a check may miss and still report OK. If both thresholds are equal,
  // no measurement could separate them, so the result corresponds to half the threshold speed.
  double coarsest() const { return warning < critical ? critical : 1 - (1 - warning) / 2; }
};

struct PeerThresholds {
  double median = 0;
  double warning = 0;   // below: WARNING
  double critical = 0;  // below: CRITICAL
};

// Requires at least one value.
PeerThresholds thresholds_of(std::span<const double> values, const PeerRule& rule);

// Returns nullopt for fewer than four values: among three, two peers are too few to outvote one.
std::optional<PeerThresholds> peer_thresholds(std::span<const double> values, const PeerRule& rule);

Severity evaluate_by_peers(double value, const PeerThresholds& thresholds) noexcept;

// Fractions of the link's rate that large messages should reach.
struct LinkRule {
  double warning = 0.80;
  double critical = 0.60;
};

Severity evaluate_by_link(double fraction, const LinkRule& rule) noexcept;

}  // namespace ddp::check
