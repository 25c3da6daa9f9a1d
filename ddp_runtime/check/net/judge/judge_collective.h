// Collectives over everybody: pairs prove links, only these prove the whole.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

struct CollectiveMeasured {
  Collective collective = Collective::all_reduce;
  int ranks = 0;
  std::size_t elements = 0;                 // of float32, of all ranks together
  std::map<int, CollectiveResult> results;  // by rank
  std::map<int, std::string> nodes;         // of the ranks
};

// Bytes per second, 1e9 to the GB. An iteration takes as long as its slowest rank; the median over
// the iterations counts. Nothing if no rank answered.
struct BusBandwidth {
  double seconds = 0;
  double algorithm_per_second = 0;  // bytes / seconds
  double factor = 0;                // bus_factor()
  double bus_per_second = 0;        // their product
};
std::optional<BusBandwidth> bus_bandwidth(const CollectiveMeasured& measured);

// A rank whose result is wrong names its node; all of them wrong is nobody's fault alone.
std::vector<Finding> judge_collective_data(const CollectiveMeasured& measured);

// The speed. `fewest_per_second`: a bus bandwidth that must be reached, if somebody asked for one.
Finding judge_collective_speed(const CollectiveMeasured& measured,
                               std::optional<double> fewest_per_second);

}  // namespace ddp::check
