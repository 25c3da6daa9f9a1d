// SPDX-License-Identifier: Apache-2.0
// How the tasks of a step are numbered: in SLURM's order, or node by node in an order of ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

// The nodes of the step, as indices into StepFacts::nodes, in the order in which `order` numbers
// them. For Order::slurm that is the list itself: SLURM decides which node's tasks come first.
// Throws UsageError, with the reason, if the order is not possible.
std::vector<std::uint32_t> node_order(const StepFacts& step, Order order);

// The requested order. If it comes only from plugstack.conf and is not possible, that must not fail
// a step: returns Order::slurm, and `reason` has the explanation.
Order possible_order(const StepFacts& step, const Chosen<Order>& requested, std::string& reason);

struct RankNumbers {
  std::uint32_t rank = 0;
  std::optional<std::uint32_t> node_rank;  // nullopt if unknown (mpirun over several hosts)
  std::string rule;                        // one phrase
  std::string source;
};

// The rank numbers of one task. Throws UsageError like node_order.
RankNumbers number_task(const StepFacts& step, const TaskFacts& task, Order order);

// True if the step's ranks are known to count node by node, so that every task knows the node of
// every rank.
bool counts_node_by_node(const StepFacts& step, Order order) noexcept;

}  // namespace ddp::launch
