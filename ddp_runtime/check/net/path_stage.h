// SPDX-License-Identifier: Apache-2.0
// Finds the largest packets that pairs of nodes can exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_drift.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

// The first task of each node, all of which have reported, sends and receives datagrams that must
// not be fragmented; a pair that loses one is probed a second time. The results omit pairs with a
// missing answer or an unknown MTU, and pairs on one machine, except `over_loopback`, for nodes
// that are only names. `seed` selects the rounds.
std::vector<PathResult> probe_paths(Leader& leader, const std::vector<NodeEntry>& nodes,
                                    std::uint64_t seed, bool over_loopback);

}  // namespace ddp::check
