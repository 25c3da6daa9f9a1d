// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/rank_order.h"

#include <numeric>

#include "base/errors.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/switch_map.h"

namespace ddp::launch {
namespace {

const char* source_of_rank(Launcher launcher) {
  switch (launcher) {
    case Launcher::slurm:
      return "SLURM_PROCID";
    case Launcher::open_mpi:
      return "OMPI_COMM_WORLD_RANK";
    case Launcher::none:
      break;
  }
  return "no launcher";
}

void require_reorderable(const StepFacts& step, Order order) {
  const std::string option = "order=" + std::string(word_for(order));
  if (!step.tasks_per_node) throw LaunchError(option + " is possible only in a SLURM step");
  if (step.has_components) {
    throw LaunchError(option + " is not possible in a step with several components (srun a : b)");
  }
  if (order == Order::by_switch && step.switch_map.empty()) {
    throw LaunchError(
        option +
        " needs to know the switches: it works with `srun --ddp` on a cluster whose "
        "`scontrol show topology` names them (TopologyPlugin=topology/tree or topology/block)");
  }
}

}  // namespace

std::vector<std::uint32_t> node_order(const StepFacts& step, Order order) {
  const bool as_slurm = order == Order::slurm || step.node_count == 1;
  if (!as_slurm) require_reorderable(step, order);
  if (order == Order::by_switch && !as_slurm)
    return order_by_switch(switch_paths(step.switch_map, step.nodes));
  std::vector<std::uint32_t> nodes(step.nodes.size());
  std::iota(nodes.begin(), nodes.end(), 0U);
  return nodes;
}

Order possible_order(const StepFacts& step, const Chosen<Order>& requested, std::string& reason) {
  if (requested.origin != Origin::site) return requested.value;
  try {
    static_cast<void>(node_order(step, requested.value));
    return requested.value;
  } catch (const UsageError& error) {
    reason = error.what();
    return Order::slurm;
  }
}

RankNumbers number_task(const StepFacts& step, const TaskFacts& task, Order order) {
  if (order == Order::slurm || step.node_count == 1) {
    return {task.rank, task.node_rank, "number of this task in the step",
            source_of_rank(step.launcher)};
  }
  RankNumbers numbers{task.local_rank, 0U,
                      order == Order::packed ? "numbered node by node"
                                             : "numbered node by node; neighbors share a switch",
                      order == Order::packed ? "SLURM_STEP_TASKS_PER_NODE" : variable::kSwitchMap};
  for (const auto node : node_order(step, order)) {
    if (node == *task.node_rank) break;
    numbers.rank += step.tasks_per_node->at(node);
    ++*numbers.node_rank;
  }
  return numbers;
}

bool counts_node_by_node(const StepFacts& step, Order order) noexcept {
  if (order != Order::slurm || step.node_count == 1) return true;
  if (!step.tasks_per_node || step.has_components || step.distribution.starts_with("arbitrary"))
    return false;
  return step.task_count == step.node_count || step.distribution.empty() ||
         step.distribution.starts_with("block");
}

}  // namespace ddp::launch
