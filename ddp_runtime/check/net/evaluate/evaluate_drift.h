// What should be the same on all nodes and is not: versions and sizes, the time, and how large the
// packets may be that travel between two of them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/locate/pair_schedule.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

// Facts that differ from those of the majority name the node; without a majority, both.
std::vector<Finding> evaluate_drift(const std::map<int, Hello>& present);

// Clocks, as seconds ahead of the leader's when the task reported and when it ended, by rank. Their
// median is taken for the right time, because the leader's own clock may be wrong.
struct ClockOffsets {
  std::map<int, double> first;
  std::map<int, double> last;
};
std::vector<Finding> evaluate_clocks(const ClockOffsets& offsets,
                                     const std::map<int, Hello>& present);

// How large packets reached the other end, of those sent with the size of the sender's interface.
struct PathResult {
  Pair pair;
  int mtu_a = 0;  // of a's interface
  int mtu_b = 0;
  int arrived_at_a = 0;  // bytes of the largest; 0 if none
  int arrived_at_b = 0;
};
bool all_arrived(const PathResult& result) noexcept;
std::vector<Finding> evaluate_paths(const std::vector<std::string>& nodes,
                                    std::span<const PathResult> results);

}  // namespace ddp::check
