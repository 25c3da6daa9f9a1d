// SPDX-License-Identifier: Apache-2.0
// Evaluates collectives over all ranks. Pairs test single links; collectives test the whole
// network.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

struct CollectiveMeasured {
  Collective collective = Collective::all_reduce;
  TransportKind over = TransportKind::mpi;
  int ranks = 0;
  std::size_t elements = 0;                 // number of float32 values on all ranks together
  std::map<int, CollectiveResult> results;  // by rank
  std::map<int, std::string> nodes;         // by rank
};

// Bandwidths in bytes per second, with 1 GB = 1e9 bytes. An iteration takes as long as its slowest
// rank; the result is the median over the iterations. Returns nullopt if no rank answered.
struct BusBandwidth {
  double seconds = 0;
  double algorithm_per_second = 0;  // bytes / seconds
  double factor = 0;                // bus_factor()
  double bus_per_second = 0;        // algorithm_per_second * factor
  double best_seconds = 0;          // time of the fastest iteration
};
std::optional<BusBandwidth> bus_bandwidth(const CollectiveMeasured& measured);

// A wrong result on a rank blames its node. If the results of all ranks are wrong, no single node
// is to blame.
std::vector<Finding> evaluate_collective_data(const CollectiveMeasured& measured);

// Results of the pairs over the same transport, since a collective consists of exchanges between
// pairs. A value is 0 if it was not measured.
struct PairBasis {
  double slowest_per_second = 0;   // bytes per second of the slowest pair that worked
  double latency_seconds = 0;      // median
  bool processors_shared = false;  // tasks share a core, which also makes waiting slower
  bool noisy = false;              // too noisy to compare speeds
};
PairBasis pair_basis_of(std::span<const PairResult> results);

// Whether a host has too few cores for its tasks and their communication threads.
bool processors_shared(const std::map<int, Hello>& present);

// Predicts the time in seconds of a ring or a tree, whichever is faster, from the speed and latency
// of the pairs. Returns nullopt if these are unknown.
std::optional<double> predicted_seconds(Collective collective, int ranks, double bytes,
                                        const PairBasis& pairs);

// Evaluates the speed. `fewest_per_second` is the required bus bandwidth, if one was requested.
// Otherwise the finding is a WARNING if the fastest iteration takes more than five times as long as
// predicted from the pairs, which catches faults that appear only under the load of the whole
// network.
Finding evaluate_collective_speed(const CollectiveMeasured& measured,
                                  std::optional<double> fewest_per_second,
                                  const PairBasis& pairs = {});

// Evaluates small messages, with a limit of ten times the prediction, which depends on the latency
// of the pairs alone.
std::vector<Finding> evaluate_collective_latency(const CollectiveMeasured& measured,
                                                 const PairBasis& pairs);

}  // namespace ddp::check
