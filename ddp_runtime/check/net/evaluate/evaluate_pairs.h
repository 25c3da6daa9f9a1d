// SPDX-License-Identifier: Apache-2.0
// Turns the exchanges of one kind (TCP or MPI) into findings about nodes and links.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/findings/threshold.h"
#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/locate/retest.h"

namespace ddp::check {

struct PairRules {
  PeerRule peers;
  LinkRule link;
  // The severity if the speeds are too noisy to detect a CRITICAL node, but show no other problem.
  // Never OK.
  Severity noise = Severity::unknown;
};

struct PairsMeasured {
  std::string kind;                   // "tcp" or "mpi": prefix of the check names
  std::vector<std::string> nodes;     // names, indexed by the positions in pairs
  std::vector<bool> already_flagged;  // nodes already reported, not to be reported as unmeasured
  std::vector<std::optional<double>> link_rate;  // bytes per second that a node's link can carry
  std::vector<PairResult> results;
  std::vector<Retest> retests = {};  // retests of nodes and links that seemed slow or lossy
  // The interface, or the RDMA port on most nodes, if one was measured separately.
  std::string rail = {};
  std::map<std::string, std::string> own_rails = {};  // where the rail has another name: by node
  Classes classes = {};  // classes by link rate; empty if all links are alike
};

// The position of a node in the vectors of PairsMeasured.
inline std::size_t slot(int node) noexcept {
  return static_cast<std::size_t>(node);
}

// Finds the smallest explanation for each kind of fault: a node, a link, or the whole network.
// Compares a speed with the peers if there are at least four of them, and with the link's rate if
// it is known. If neither is possible, the finding says so. A node without a measurement
// is UNKNOWN.
std::vector<Finding> evaluate_pairs(const PairsMeasured& measured, const PairRules& rules);

// The smallest slowdown relative to the peers, as a fraction, that is detected in 19 of 20 cases.
// Returns nullopt if speeds cannot be compared.
std::optional<double> detection_limit_of(const PairsMeasured& measured, const PeerRule& rule);

// Median and lowest speed, and median latency, of all exchanges that worked.
struct PairSummary {
  std::size_t exchanges = 0;
  double median_per_second = 0;
  double lowest_per_second = 0;
  double latency_seconds = 0;
};
PairSummary summarize(std::span<const PairResult> results);

}  // namespace ddp::check
