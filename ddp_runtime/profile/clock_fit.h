// SPDX-License-Identifier: Apache-2.0
// How the clock of one node differs from that of another, from moments that both have seen.
//
// Note [Clocks of nodes]
// Processes of one node read the same steady clock; clocks of different nodes have different
// origins, and run at rates that differ by up to some 100 ppm. A collective ends at the same moment
// on all ranks, but for the time of its last message and for ranks that get no processor at once.
// Such delays are rare and only in one direction, so the line through the differences is that of
// medians (Theil and Sen), which a quarter of late ends does not move.
#pragma once

#include <optional>
#include <span>

namespace ddp::profile {

// Seconds on two clocks at one moment.
struct CommonMoment {
  double here = 0;
  double there = 0;
};

struct ClockFit {
  double origin = 0;    // the moment `there` of the middle of the moments
  double offset = 0;    // here - there at that moment
  double rate = 0;      // change of the offset per second
  double residual = 0;  // the median of the absolute errors, in seconds

  double here(double there) const { return there + offset + rate * (there - origin); }
};

// The moments need not be sorted. nullopt if there are none. The rate is 0 if they are too few, or
// too close together, to show it.
std::optional<ClockFit> fit_clock(std::span<const CommonMoment> moments);

}  // namespace ddp::profile
