// SPDX-License-Identifier: Apache-2.0
// Numbers the tasks of a step: in SLURM's order, or node by node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

// Returns the nodes of the step, as indices into StepFacts::nodes, in the order in which `order`
// numbers them. For Order::slurm that is the order of the list, because SLURM itself numbers the
// tasks. Throws UsageError, with the reason, if the order is not possible.
std::vector<std::uint32_t> node_order(const StepFacts& step, Order order);

// Returns the requested order. An impossible order from plugstack.conf must not fail a step: the
// result is then Order::slurm, and `reason` explains it.
Order possible_order(const StepFacts& step, const Chosen<Order>& requested, std::string& reason);

struct RankNumbers {
  std::uint32_t rank = 0;
  std::optional<std::uint32_t> node_rank;  // nullopt if unknown (mpirun over several hosts)
  std::string rule;                        // one phrase
  std::string source;
};

// Returns the rank numbers of one task. Throws UsageError like node_order.
RankNumbers number_task(const StepFacts& step, const TaskFacts& task, Order order);

// True if the step's ranks are known to be numbered node by node, so that every task knows the node
// of every rank.
bool counts_node_by_node(const StepFacts& step, Order order) noexcept;

}  // namespace ddp::launch
