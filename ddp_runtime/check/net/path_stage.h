// SPDX-License-Identifier: Apache-2.0
// Finds the largest packets that nodes can exchange, in the rounds of the pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_drift.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

// The first task of each node sends and receives datagrams that must not be fragmented; a pair that
// loses one is probed a second time. Pairs with a missing answer or an unknown MTU are left out.
// `seed` selects the rounds, and distinguishes this run's datagrams from others.
std::vector<PathResult> probe_paths(Leader& leader, const std::vector<NodeEntry>& nodes,
                                    std::uint64_t seed);

}  // namespace ddp::check
