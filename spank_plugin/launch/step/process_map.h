// SPDX-License-Identifier: Apache-2.0
// SLURM_PMIX_MAPPING_SERV, the map of a step's ranks to nodes, which SLURM's PMIx plugin sets for
// the tasks: "(vector,(2,1,2),(0,2,1))" is two ranks on node 2, then one each on nodes 0 and 1. It
// is the only variable that shows where rank 0 is when the order of the nodes is not the order of
// the ranks (arbitrary distribution, steps of several components).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddp::launch {

// Returns the index in the step's node list of the node that runs rank 0, if the text is a map of
// exactly `tasks` ranks onto nodes 0 to `nodes` - 1. Returns nullopt for any other text, because it
// may be inherited from another step.
std::optional<std::uint32_t> node_of_rank_zero(std::string_view text, std::uint32_t tasks,
                                               std::uint32_t nodes);

}  // namespace ddp::launch
