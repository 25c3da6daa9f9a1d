// SPDX-License-Identifier: Apache-2.0
// Evaluates differences between nodes that should be identical: versions and sizes, clocks, and the
// largest packet that two nodes can exchange.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/locate/pair_schedule.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

// Names the nodes whose facts differ from the majority. Without a majority, names both sides.
std::vector<Finding> evaluate_drift(const std::map<int, Hello>& present);

// Seconds by which each task's clock was ahead of the leader's, when the task reported and at the
// end, by rank. The median counts as the right time, because the leader's clock may be wrong.
struct ClockOffsets {
  std::map<int, double> first;
  std::map<int, double> last;
};
std::vector<Finding> evaluate_clocks(const ClockOffsets& offsets,
                                     const std::map<int, Hello>& present);

// The largest packets that arrived. The largest packet that each end sends has the MTU of its
// interface to the other.
struct PathResult {
  Pair pair;
  int mtu_a = 0;  // MTU of a's interface to b, in bytes
  int mtu_b = 0;
  int arrived_at_a = 0;  // largest size in bytes; 0 if none arrived
  int arrived_at_b = 0;
};
bool all_arrived(const PathResult& result) noexcept;
std::vector<Finding> evaluate_paths(const std::vector<std::string>& nodes,
                                    std::span<const PathResult> results);

}  // namespace ddp::check
