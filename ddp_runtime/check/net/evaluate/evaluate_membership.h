// Who came, who did not, and who was lost on the way.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

// `timeout`: how long was waited. `refusals`: why tasks that came were sent away.
std::vector<Finding> evaluate_roll_call(const JobStep& step, const std::map<int, Hello>& present,
                                        std::chrono::milliseconds timeout,
                                        const std::vector<std::string>& refusals);

// Of a step with one node that reported, so that no pair can be measured. OK where the whole SLURM
// job is that node, since such a job sends nothing over the network; UNKNOWN anywhere else.
Finding evaluate_no_pair(const JobStep& step);

std::vector<Finding> evaluate_lost(std::span<const LostTask> lost);

// What the tasks say about the way to the leader: the name must mean the same everywhere, the
// leader must reach itself by it, and packet sizes must agree.
std::vector<Finding> evaluate_reports(const JobStep& step, const std::map<int, Hello>& present);

// Nodes of the step that were found to be bad before, by another check.
std::vector<Finding> evaluate_known_bad(const std::vector<std::string>& bad,
                                        const std::vector<std::string>& nodes);

}  // namespace ddp::check
