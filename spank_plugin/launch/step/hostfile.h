// SPDX-License-Identifier: Apache-2.0
// Parses the file named by SLURM_HOSTFILE: one node per task, in rank order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::launch {

// Returns the node of rank 0, the first name of the first line with a name. A line may be a node
// list, may end in "*N" (repeat), and ends at '#'. Returns nullopt if there is no name in the text.
// Throws UsageError if that line is not a node list.
std::optional<std::string> first_host_of_hostfile(std::string_view text);

}  // namespace ddp::launch
