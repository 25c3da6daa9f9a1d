// Which schedule is the fastest one for a size, a number of ranks and a network. Pure: all ranks
// that agree on the three choose the same.
//
// The costs are those of docs/collectives.md: a message of m bytes takes alpha + m beta; of adding
// it up, all but the last segment hides behind the wire, or the wire behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ddp_runtime/comm/network_model.h"
#include "ddp_runtime/comm/schedules/rounds.h"

namespace ddp::comm::schedules {

enum class AllReduce : std::uint8_t { doubling, halving, ring };
enum class Broadcast : std::uint8_t { tree, chain, scatter };
enum class InOrder : std::uint8_t { chain, gather };

// What the costs depend on besides the number of ranks and the size.
struct CostModel {
  NetworkModel network;
  std::size_t segment_bytes = std::size_t{60} << 10;
};

// Seconds, for n >= 1 ranks that start together and `bytes` on each of them.
double cost(AllReduce schedule, int n, std::size_t bytes, const CostModel& model);
double cost(Broadcast schedule, int n, std::size_t bytes, const CostModel& model);
double cost(InOrder schedule, int n, std::size_t bytes, const CostModel& model);

// The ring is taken if it costs at most 5 % more than the best: it loads nothing but links between
// neighbors, of which the model knows nothing.
AllReduce choose_all_reduce(int n, std::size_t bytes, const CostModel& model);
Broadcast choose_broadcast(int n, std::size_t bytes, const CostModel& model);
InOrder choose_in_order(int n, std::size_t bytes, const CostModel& model);
// For reduce-scatter and all-gather of `bytes` in all: ring or halving.
Rounds choose_rounds(int n, std::size_t bytes, const CostModel& model);

// One line for people: the network, and up to which size each all-reduce is chosen.
std::string describe(int n, const CostModel& model);

}  // namespace ddp::comm::schedules
