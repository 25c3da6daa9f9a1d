// SPDX-License-Identifier: Apache-2.0
// Collectives over all ranks: pairs test links, only collectives test the whole network.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

struct CollectiveMeasured {
  Collective collective = Collective::all_reduce;
  int ranks = 0;
  std::size_t elements = 0;                 // number of float32 values, all ranks together
  std::map<int, CollectiveResult> results;  // by rank
  std::map<int, std::string> nodes;         // by rank
};

// Bytes per second, with 1 GB = 1e9 bytes. An iteration takes as long as its slowest rank; the
// result is the median over the iterations. Returns nullopt if no rank answered.
struct BusBandwidth {
  double seconds = 0;
  double algorithm_per_second = 0;  // bytes / seconds
  double factor = 0;                // bus_factor()
  double bus_per_second = 0;        // algorithm_per_second * factor
  double best_seconds = 0;          // of the fastest iteration
};
std::optional<BusBandwidth> bus_bandwidth(const CollectiveMeasured& measured);

// A rank whose result is wrong names its node. If all ranks are wrong, no single node is to blame.
std::vector<Finding> evaluate_collective_data(const CollectiveMeasured& measured);

// What the pairs reached over the same library, since a collective consists of such exchanges. 0
// for anything that was not measured.
struct PairBasis {
  double slowest_per_second = 0;   // bytes per second of the slowest pair that worked
  double latency_seconds = 0;      // median
  bool processors_shared = false;  // tasks take turns on a core, so waiting takes longer too
  bool noisy = false;              // too much to compare speeds
};
PairBasis pair_basis_of(std::span<const PairResult> results);

// Whether a host has too few cores for its tasks and their communication threads.
bool processors_shared(const std::map<int, Hello>& present);

// Seconds that a ring or a tree takes, whichever is faster, predicted from the speed and latency of
// the pairs. Returns nullopt if these are not known.
std::optional<double> predicted_seconds(Collective collective, int ranks, double bytes,
                                        const PairBasis& pairs);

// Evaluates the speed. `fewest_per_second` is the bus bandwidth that must be reached, if one was
// requested. Otherwise the fastest iteration may take up to five times as long as the pairs
// predict; anything slower is a WARNING, which catches faults that only the whole network shows.
Finding evaluate_collective_speed(const CollectiveMeasured& measured,
                                  std::optional<double> fewest_per_second,
                                  const PairBasis& pairs = {});

// The same for small messages, with a limit of ten times the prediction: there the latency of the
// pairs is all that counts.
std::vector<Finding> evaluate_collective_latency(const CollectiveMeasured& measured,
                                                 const PairBasis& pairs);

}  // namespace ddp::check
