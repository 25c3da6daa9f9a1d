#pragma once
// How the tasks of a step are numbered: as SLURM does, or node by node in an order of ours.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

// The nodes of the step as indices into StepFacts::nodes, in the order in which `order` numbers
// them. For Order::slurm that is the list itself: which node's tasks come first is then SLURM's
// affair. Throws UsageError where the order cannot be had, saying why.
std::vector<std::uint32_t> node_order(const StepFacts& step, Order order);

// The order that was asked for. One that only plugstack.conf asks for is no reason to end a step:
// if it cannot be had, Order::slurm, and `reason` says why.
Order possible_order(const StepFacts& step, const Chosen<Order>& requested, std::string& reason);

struct RankNumbers {
  std::uint32_t rank = 0;
  std::optional<std::uint32_t> node_rank;  // nothing if unknown (mpirun over several hosts)
  std::string rule;                        // one phrase
  std::string source;
};

// The numbers of one task. Throws UsageError like node_order.
RankNumbers number_task(const StepFacts& step, const TaskFacts& task, Order order);

// True if the step's ranks are known to count node by node, so that every task can tell where every
// rank is.
bool counts_node_by_node(const StepFacts& step, Order order) noexcept;

}  // namespace ddp::launch
