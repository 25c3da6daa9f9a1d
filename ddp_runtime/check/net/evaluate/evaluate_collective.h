// Collectives over everybody: pairs prove links, only these prove the whole.
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
  double best_seconds = 0;          // of the fastest iteration
};
std::optional<BusBandwidth> bus_bandwidth(const CollectiveMeasured& measured);

// A rank whose result is wrong names its node; all of them wrong is nobody's fault alone.
std::vector<Finding> evaluate_collective_data(const CollectiveMeasured& measured);

// What the pairs reached over the same library: a collective is a number of their exchanges. 0 for
// what was not measured.
struct PairBasis {
  double slowest_per_second = 0;   // bytes, of the slowest pair that worked
  double latency_seconds = 0;      // median
  bool processors_shared = false;  // tasks take turns on a processor, and so does their waiting
  bool noisy = false;              // too much to be compared with each other
};
PairBasis pair_basis_of(std::span<const PairResult> results);

// Whether some host has too few processors for its tasks and their communication threads.
bool processors_shared(const std::map<int, Hello>& present);

// Seconds that a ring or a tree takes, the faster of both, by the speed and latency of the pairs.
// Nothing without these.
std::optional<double> predicted_seconds(Collective collective, int ranks, double bytes,
                                        const PairBasis& pairs);

// The speed. `fewest_per_second`: a bus bandwidth that must be reached, if somebody asked for one.
// Otherwise the fastest iteration may take five times as long as the pairs predict; slower is a
// WARNING, for faults that only the whole shows.
Finding evaluate_collective_speed(const CollectiveMeasured& measured,
                                  std::optional<double> fewest_per_second,
                                  const PairBasis& pairs = {});

// Likewise of little data, ten times as long: then the latency of the pairs is all that counts.
std::vector<Finding> evaluate_collective_latency(const CollectiveMeasured& measured,
                                                 const PairBasis& pairs);

}  // namespace ddp::check
