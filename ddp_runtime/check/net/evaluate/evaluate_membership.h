// SPDX-License-Identifier: Apache-2.0
// Evaluates which tasks reported, which are missing, and which were lost during the check.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

// `timeout`: how long the leader waited. `refusals`: why it rejected connecting tasks.
// If most nodes are silent, none of them is named as bad, here and in evaluate_lost(): the leader's
// node may be the one that is cut off, and every good node would be excluded because of it.
std::vector<Finding> evaluate_roll_call(const JobStep& step, const std::map<int, Hello>& present,
                                        std::chrono::milliseconds timeout,
                                        const std::vector<std::string>& refusals);

// The finding for a step in which only one node reported and no pair can be measured. OK if the
// SLURM job has only this node and so sends nothing over the network; UNKNOWN otherwise.
Finding evaluate_no_pair(const JobStep& step);

// `nodes`: all nodes of the step, each with the tasks that reported.
std::vector<Finding> evaluate_lost(const JobStep& step, const std::vector<NodeEntry>& nodes,
                                   std::span<const LostTask> lost);

// UNKNOWN if the leader's process was suspended for a while: tasks that waited for it were not
// measured as usual. No findings for 0 seconds.
std::vector<Finding> evaluate_suspension(double seconds);

// Evaluates the tasks' reports about the path to the leader: the leader's name must resolve to the
// same address on all nodes, the leader must reach itself by that name, and the MTUs must agree.
std::vector<Finding> evaluate_reports(const JobStep& step, const std::map<int, Hello>& present);

// Nodes of the step that another check already found to be bad.
std::vector<Finding> evaluate_known_bad(const std::vector<std::string>& bad,
                                        const std::vector<std::string>& nodes);

}  // namespace ddp::check
