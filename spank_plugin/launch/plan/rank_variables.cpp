// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/rank_variables.h"

#include "spank_plugin/launch/plan/gpu_view.h"
#include "spank_plugin/launch/plan/leader.h"
#include "spank_plugin/launch/plan/master_port.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/text.h"

namespace ddp::launch {
namespace {

struct RankSources {
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* node_rank;
  const char* nodes;
};

RankSources rank_sources(Launcher launcher) {
  switch (launcher) {
    case Launcher::slurm:
      return {"SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID",
              "SLURM_STEP_NUM_NODES"};
    case Launcher::open_mpi:
      return {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
              "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"};
    case Launcher::none:
      break;
  }
  return {"no launcher", "no launcher", "no launcher", "no launcher", "no launcher"};
}

void add_local_rank(PlanBuilder& plan, const Facts& facts, const GpuView& gpus,
                    const Settings& settings, const char* source) {
  // No variable but LOCAL_RANK may choose the GPU: a launcher that the task starts gives each of
  // its workers another LOCAL_RANK, and knows no variables of ours.
  const auto device = gpus.device_of(facts.task.local_rank);
  if (settings.local_rank.value == LocalRankMeaning::device && device) {
    plan.set("LOCAL_RANK", std::to_string(*device),
             "number of this task's GPU among the visible ones", gpus.source);
  } else {
    plan.set("LOCAL_RANK", std::to_string(facts.task.local_rank), "number of this task on its node",
             source);
  }
}

// SLURM sets SLURM_NTASKS_PER_NODE only if --ntasks-per-node was given, perhaps to the job and thus
// for all its steps. Lightning aborts if the variable is missing or differs from its number of
// devices.
void add_tasks_per_node(PlanBuilder& plan, const StepFacts& step) {
  if (step.launcher != Launcher::slurm || !step.tasks_per_node->uniform()) return;
  plan.correct(variable::kTasksPerNode, std::to_string(step.tasks_per_node->at(0)),
               "tasks on each node of the step, where SLURM does not set it",
               "SLURM_STEP_TASKS_PER_NODE");
}

std::string all_workers(const Facts& facts, const Settings& settings,
                        const std::vector<std::uint16_t>& ports) {
  const auto& step = facts.step;
  constexpr std::size_t kMaxList = 126'000;  // SLURM accepts variables of less than 128 KiB
  std::string list;
  for (const auto node : node_order(step, settings.order.value)) {
    const std::uint32_t tasks =
        step.tasks_per_node ? step.tasks_per_node->at(node) : step.task_count;
    if (tasks > ports.size()) {
      throw LaunchError("TF_CONFIG needs a port for each of the " + std::to_string(tasks) +
                        " tasks of a node, but there are " + std::to_string(ports.size()) +
                        "; reserve more with srun --resv-ports=" + std::to_string(tasks + 1));
    }
    const std::string host = address_of_node(step.nodes[node], facts, settings);
    for (std::uint32_t local = 0; local < tasks; ++local) {
      list += list.empty() ? "\"" : ",\"";
      list += endpoint(host, std::to_string(ports[local]));
      list += '"';
    }
    if (list.size() > kMaxList) {
      throw LaunchError("TF_CONFIG of " + std::to_string(step.task_count) +
                        " ranks is longer than a variable can be; leave out tf_config");
    }
  }
  return list;
}

}  // namespace

void add_ranks(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
               const Settings& settings) {
  const auto& step = facts.step;
  const auto& task = facts.task;
  const auto& node = facts.node;
  const RankSources from = rank_sources(step.launcher);
  plan.set("RANK", std::to_string(numbers.rank), numbers.rule, numbers.source);
  plan.set("WORLD_SIZE", std::to_string(step.task_count), "tasks of the step", from.size);
  add_local_rank(plan, facts, view_gpus(task, node), settings, from.local_rank);
  plan.set("LOCAL_WORLD_SIZE", std::to_string(task.local_task_count), "tasks on this node",
           from.local_size);
  add_tasks_per_node(plan, step);
  if (!numbers.node_rank) {
    plan.note("NODE_RANK and GROUP_RANK are not set: mpirun does not number its hosts");
    return;
  }
  if (step.node_count != 0) {
    const std::string nodes = std::to_string(step.node_count);
    plan.set("NNODES", nodes, "nodes of the step", from.nodes);
    plan.set("GROUP_WORLD_SIZE", nodes, "same as NNODES (torchrun's name)", from.nodes);
  }
  const std::string node_rank = std::to_string(*numbers.node_rank);
  plan.set("NODE_RANK", node_rank, "number of this node in the step", from.node_rank);
  plan.set("GROUP_RANK", node_rank, "same as NODE_RANK (torchrun's name)", from.node_rank);
}

void add_jax(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
             const Settings& settings) {
  const auto ports = service_ports(facts.step, settings, 1);
  const auto& free = facts.node.free_second_port;
  std::string port = plan.value_of("MASTER_PORT");
  std::string rule = "MASTER_ADDR and MASTER_PORT: there is no second port";
  if (!ports.empty()) {
    port = std::to_string(free.value_or(ports[0]));
    rule = "MASTER_ADDR and a second port";
    if (free && *free != ports[0]) rule += ", the first that is free";
  }
  plan.suggest("JAX_COORDINATOR_ADDRESS", endpoint(plan.value_of("MASTER_ADDR"), port),
               std::move(rule),
               facts.step.reserved_ports.empty() ? "MASTER_ADDR" : "SLURM_STEP_RESV_PORTS");
  plan.set("JAX_NUM_PROCESSES", std::to_string(facts.step.task_count), "same as WORLD_SIZE",
           "WORLD_SIZE");
  plan.set("JAX_PROCESS_ID", std::to_string(numbers.rank), "same as RANK", "RANK");
  // JAX uses SLURM_LOCALID as the number of its GPU, which does not exist if only one is visible.
  const GpuView gpus = view_gpus(facts.task, facts.node);
  if (gpus.is_masked && gpus.visible == 1U) {
    plan.suggest("JAX_LOCAL_DEVICE_IDS", "0", "the only GPU that this task sees", gpus.source);
  }
}

void add_tf_config(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                   const Settings& settings) {
  const auto& step = facts.step;
  if (step.nodes.empty() || !counts_node_by_node(step, settings.order.value)) {
    throw LaunchError(
        "TF_CONFIG lists all ranks, but their nodes are known only if the ranks are numbered node "
        "by node; add order=packed, or use --distribution=block");
  }
  const auto ports = service_ports(step, settings, 65'536);
  plan.suggest("TF_CONFIG",
               R"({"cluster":{"worker":[)" + all_workers(facts, settings, ports) +
                   R"(]},"task":{"type":"worker","index":)" + std::to_string(numbers.rank) + "}}",
               "all workers in the order of their ranks, with a port each", "SLURM_STEP_NODELIST");
}

}  // namespace ddp::launch
