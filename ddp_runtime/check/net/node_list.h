// SLURM's compressed lists, as they stand in the variables of a job step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::check {

// "n[1-3,07],m5" -> n1 n2 n3 n07 m5, in the order of the list, which is the order of SLURM_NODEID.
// An element may have several bracket groups. Throws UsageError for a list that is not well formed
// or has more than 65536 names.
std::vector<std::string> expand_node_list(std::string_view list);

// "2(x3),1" -> 2 2 2 1. Throws UsageError likewise.
std::vector<int> expand_task_counts(std::string_view list);

}  // namespace ddp::check
