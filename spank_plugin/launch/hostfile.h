#pragma once
// The file that SLURM_HOSTFILE names: one node per task, in rank order.

#include <optional>
#include <string>
#include <string_view>

namespace ddp::launch {

// The node of rank 0: the first name of the first line that holds one. A line may be a node list,
// may end in "*N" (repeat), and ends at '#'. Nothing if the text holds no name.
// Throws UsageError if that line is no node list.
std::optional<std::string> first_host_of_hostfile(std::string_view text);

}  // namespace ddp::launch
