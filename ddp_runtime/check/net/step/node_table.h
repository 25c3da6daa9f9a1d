// SPDX-License-Identifier: Apache-2.0
// The nodes of the step: expected nodes and nodes that reported.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/step/job_step.h"

namespace ddp::check {

struct NodeEntry {
  std::string name;
  int expected_tasks = 0;  // 0 if unknown
  std::vector<int> ranks;  // ranks that reported, ascending; the first represents the node
};

// Expected nodes in their order, then other nodes that reported.
std::vector<NodeEntry> node_table(const JobStep& step, const std::map<int, Hello>& present);

std::vector<std::string> names_of(const std::vector<NodeEntry>& nodes);

}  // namespace ddp::check
