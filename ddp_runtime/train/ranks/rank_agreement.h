// SPDX-License-Identifier: Apache-2.0
// Ranks that were started differently would train together without an error: with different
// learning rates their models drift apart, and with different seeds some samples are seen twice and
// others never. So they compare their options and data before the first step.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::train {

// Why the ranks must not train together, naming the ranks that differ from most others; empty if
// their descriptions are the same. `runs`: the description of each rank, in rank order.
std::string rank_differences(const std::vector<std::string>& runs);

// Collective. Calls `work` on rank 0, and returns on all ranks what the exception from it says;
// empty if there was none.
std::string problem_on_leader(comm::Group& group, const std::function<void()>& work);

// Collective. Returns the first problem of a rank on all ranks, with the rank and its host; empty
// if `mine` is empty on all of them.
std::string first_problem(comm::Group& group, const std::string& mine, const std::string& host);

// Collective. Throws the same UsageError on all ranks if their descriptions of the run differ.
void require_same_run(comm::Group& group, const nlohmann::json& run);

}  // namespace ddp::train
