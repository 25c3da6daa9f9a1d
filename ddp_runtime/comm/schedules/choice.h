// SPDX-License-Identifier: Apache-2.0
// Chooses the fastest schedule for a size, a number of ranks and a network. Pure: ranks with the
// same three inputs make the same choice.
//
// The costs are those of docs/collectives.md: a message of m bytes takes alpha + m beta. The
// transfer hides the addition of all but the last segment, or the addition hides the transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ddp_runtime/comm/schedules/rounds.h"
#include "ddp_runtime/comm/transport/network_model.h"

namespace ddp::comm::schedules {

enum class AllReduce : std::uint8_t { doubling, halving, ring };
enum class Broadcast : std::uint8_t { tree, chain, scatter };
enum class InOrder : std::uint8_t { chain, gather };

// Parameters of the costs besides the number of ranks and the size.
struct CostModel {
  NetworkModel network;
  std::size_t segment_bytes = std::size_t{60} << 10;
};

// The cost in seconds for n >= 1 ranks that start together, with `bytes` on each of them.
double cost(AllReduce schedule, int n, std::size_t bytes, const CostModel& model);
double cost(Broadcast schedule, int n, std::size_t bytes, const CostModel& model);
double cost(InOrder schedule, int n, std::size_t bytes, const CostModel& model);

// The ring is chosen if it costs at most 5 % more than the best: it uses only links between
// neighbors, and the model does not include the topology.
AllReduce choose_all_reduce(int n, std::size_t bytes, const CostModel& model);
Broadcast choose_broadcast(int n, std::size_t bytes, const CostModel& model);
InOrder choose_in_order(int n, std::size_t bytes, const CostModel& model);
// Chooses ring or halving for a reduce-scatter or all-gather of `bytes` in total.
Rounds choose_rounds(int n, std::size_t bytes, const CostModel& model);

// One line of text with the network and the largest size for which each all-reduce is chosen.
std::string describe(int n, const CostModel& model);

}  // namespace ddp::comm::schedules
