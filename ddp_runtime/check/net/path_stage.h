// Probes of the largest packets between the nodes, in the rounds of the pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_drift.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

// The first task of each node sends and receives datagrams that must not be cut; where one got
// lost, once more. Without pairs in which an answer is missing or whose MTU is not known. `seed`
// chooses the rounds, and tells this run's datagrams from others'.
std::vector<PathResult> probe_paths(Leader& leader, const std::vector<NodeEntry>& nodes,
                                    std::uint64_t seed);

}  // namespace ddp::check
