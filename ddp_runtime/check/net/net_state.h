// SPDX-License-Identifier: Apache-2.0
// What the stages of one network check share: the tasks, the options, and the results so far.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/verdict.h"
#include "ddp_runtime/check/net/evaluate/evaluate_collective.h"
#include "ddp_runtime/check/net/run_net.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

struct NetState {
  Leader& leader;
  const NetOptions& options;
  std::vector<NodeEntry> nodes = {};
  Verdict verdict = {};
  std::string summary = {};                       // text for the verdict line
  std::uint64_t first_of_path = 0;                // number of the next path's first exchange
  std::map<TransportKind, PairBasis> pairs = {};  // basis for judging the collectives
  std::map<std::string, std::set<std::string>> used = {};  // devices that carried data, by node
};

// The nodes whose first task reported and has not been lost.
std::vector<NodeEntry> answering_nodes(const NetState& state);

}  // namespace ddp::check
