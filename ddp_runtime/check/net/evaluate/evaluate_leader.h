// SPDX-License-Identifier: Apache-2.0
// Evaluates whether the tasks find rank 0 by its name or address, and who is to blame if not.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/step/job_step.h"

namespace ddp::check {

// The node of rank 0 if rank 0 does not reach itself by its name; empty otherwise. The other tasks
// on that node do not reach it either.
std::string node_of_lost_leader(const std::map<int, Hello>& present);

// Whether rank 0 does not reach itself by its name, and its node is not to blame: the silence of
// other nodes then has the same cause.
bool is_leaders_name_wrong(const JobStep& step, const std::map<int, Hello>& present);

// The leader's name must resolve to the same address on all nodes, and rank 0 must reach itself by
// that name. If it does not, its node is named only if most nodes resolve the same name to another
// address, and reach rank 0 there: any other cause, such as a wrong MASTER_ADDR or a name service
// that does not answer, is none of the node's faults, and would condemn each node in turn.
std::vector<Finding> evaluate_leader(const JobStep& step, const std::map<int, Hello>& present);

}  // namespace ddp::check
