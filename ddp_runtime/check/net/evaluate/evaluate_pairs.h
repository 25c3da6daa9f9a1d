// From the exchanges of one kind (TCP or MPI) to findings about nodes and links.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/locate/retest.h"
#include "ddp_runtime/check/net/locate/threshold.h"

namespace ddp::check {

struct PairRules {
  PeerRule peers;
  LinkRule link;
  // What it is when speeds are too noisy to find a node that is CRITICAL, and nothing else is wrong
  // with them: never OK.
  Severity noise = Severity::unknown;
};

struct PairsMeasured {
  std::string kind;                              // "tcp" or "mpi": begins the names of the checks
  std::vector<std::string> nodes;                // names; positions are those of the pairs
  std::vector<bool> already_flagged;             // nodes that are named already: not "unmeasured"
  std::vector<std::optional<double>> link_rate;  // bytes per second a node's link can carry
  std::vector<PairResult> results;
  std::vector<Retest> retests = {};  // of who seemed slow or lossy
  std::string rail = {};             // the interface that was measured by itself, if one was
  Classes classes = {};              // by the rates of their links; empty if all are alike
};

// For each kind of wrong the smallest explanation: a node, a link, or the whole network. A speed is
// compared with the peers if there are four, and with the link's rate if that is known; where
// neither is possible the finding says so. A node without a measurement is UNKNOWN.
std::vector<Finding> evaluate_pairs(const PairsMeasured& measured, const PairRules& rules);

// Part by which a node would have to be slower than its peers to be found, in 19 of 20 cases.
// Nothing where speeds cannot be compared.
std::optional<double> detection_limit_of(const PairsMeasured& measured, const PeerRule& rule);

// Median and lowest of the speeds, and median latency, of all exchanges that worked.
struct PairSummary {
  std::size_t exchanges = 0;
  double median_per_second = 0;
  double lowest_per_second = 0;
  double latency_seconds = 0;
};
PairSummary summarize(std::span<const PairResult> results);

}  // namespace ddp::check
