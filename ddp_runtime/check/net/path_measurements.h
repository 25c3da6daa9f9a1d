// SPDX-License-Identifier: Apache-2.0
// Measures the pairs of nodes over a path, and adds the results to the verdict.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"
#include "ddp_runtime/check/net/net_path.h"
#include "ddp_runtime/check/net/net_state.h"

namespace ddp::check {

struct PathMeasured {
  PairsMeasured pairs = {};
  std::string carriers = {};  // " through eth0"
  std::string skipped = {};   // why there was no pair; empty if there was
  std::string broken = {};    // reason for an early stop; empty if the stage completed
};

// Measures the path between all nodes that have it. Adds findings and measurements.
PathMeasured measure_path(NetState& state, const NetPath& path);

// Measures the path, and adds its figures and its words in the verdict line as well; if there is no
// pair, only a note. Returns the reason for an early stop; empty if the stage completed.
std::string measure_pairs(NetState& state, const NetPath& path);

// Adds a note about a path that was skipped.
void add_skipped(NetState& state, const std::string& title, const std::string& skipped);
// Adds the figures of a path.
void add_figures(NetState& state, const std::string& kind, const PairSummary& summary);
// Adds the smallest slowdown that the check would have found on this path, on any of its rails.
void add_limit(NetState& state, const std::string& kind,
               const std::vector<PairsMeasured>& measured);
// All rails of RDMA have one list, in which the entries name the rail.
void add_measurements(NetState& state, const std::string& name, const NetPath& path,
                      nlohmann::json list);

}  // namespace ddp::check
