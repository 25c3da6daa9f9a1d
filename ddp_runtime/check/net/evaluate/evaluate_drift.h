// SPDX-License-Identifier: Apache-2.0
// Differences between nodes that should be identical: versions and sizes, clocks, and the largest
// packet that two nodes can exchange.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/locate/pair_schedule.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

// A fact that differs from the majority names the node; without a majority both sides are named.
std::vector<Finding> evaluate_drift(const std::map<int, Hello>& present);

// Clocks, in seconds ahead of the leader's when the task reported and when it ended, by rank. Their
// median is taken as the right time, because the leader's own clock may be wrong.
struct ClockOffsets {
  std::map<int, double> first;
  std::map<int, double> last;
};
std::vector<Finding> evaluate_clocks(const ClockOffsets& offsets,
                                     const std::map<int, Hello>& present);

// The largest packets that reached the other end, of those sent at the sender's interface MTU.
struct PathResult {
  Pair pair;
  int mtu_a = 0;  // of a's interface
  int mtu_b = 0;
  int arrived_at_a = 0;  // largest size in bytes; 0 if none arrived
  int arrived_at_b = 0;
};
bool all_arrived(const PathResult& result) noexcept;
std::vector<Finding> evaluate_paths(const std::vector<std::string>& nodes,
                                    std::span<const PathResult> results);

}  // namespace ddp::check
