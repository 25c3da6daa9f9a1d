// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/plan_notes.h"

#include <numeric>

#include "base/errors.h"
#include "base/hostlist.h"
#include "base/text.h"
#include "spank_plugin/launch/plan/gpu_view.h"
#include "spank_plugin/launch/plan/rank_order.h"
#include "spank_plugin/launch/step/switch_map.h"
#include "spank_plugin/launch/step/text.h"

namespace ddp::launch {
namespace {

// True if the node's ranks are `first`, `first` + 1, ... in local rank order.
bool numbered_from(std::uint32_t first, const TaskFacts& task) {
  if (task.ranks_on_node.empty()) return task.rank == first + task.local_rank;
  std::vector<std::uint32_t> expected(task.ranks_on_node.size());
  std::iota(expected.begin(), expected.end(), first);
  return task.ranks_on_node == expected;
}

// Programs often compute the node as rank / LOCAL_WORLD_SIZE, which is correct only if the ranks
// are numbered node by node.
void note_layout(PlanBuilder& plan, const StepFacts& step, const TaskFacts& task) {
  if (!step.tasks_per_node) return;
  if (!step.tasks_per_node->uniform()) {
    plan.note(
        "the nodes run different numbers of tasks; programs that expect equal numbers "
        "fail (--ntasks-per-node makes them equal)");
  }
  const bool in_order = numbered_from(step.tasks_per_node->before(*task.node_rank), task);
  if (!in_order && !step.has_components) {
    plan.note("the ranks are not numbered node by node (distribution " +
              (step.distribution.empty() ? "block" : step.distribution) +
              "); programs that compute the node as rank / LOCAL_WORLD_SIZE fail "
              "(--distribution=block, or --ddp=order=packed)");
  }
}

void note_port(PlanBuilder& plan, const PlanEntry& port) {
  constexpr std::uint64_t kFirstOfUsers = 1024;
  const auto number = parse_decimal(port.value, 65'535);
  std::string problem;
  if (!number) {
    problem = "is not a number from 1 to 65535";
  } else if (*number == 0) {
    problem = "lets the kernel choose a port, which the other ranks do not know";
  } else if (*number < kFirstOfUsers) {
    problem = "is a port on which usually only root may listen";
  } else {
    return;
  }
  plan.note("MASTER_PORT=" + quote_for_display(port.value) + " (" + port.source + ") " + problem +
            "; unset it, or choose one from 1024 on");
}

void note_rendezvous(PlanBuilder& plan, const Plan& result, const StepFacts& step) {
  const PlanEntry* address = result.find("MASTER_ADDR");
  const bool local = address->value == "localhost" || address->value.starts_with("127.") ||
                     address->value == "::1";
  // A site sets a loopback address for every step only if all its nodes are one host.
  const bool is_site_choice = address->source == origin_name(Origin::site);
  if (local && step.node_count != 1 && !is_site_choice) {
    plan.note("MASTER_ADDR=" + address->value + " (" + address->source +
              ") points every node to itself, but the step has several");
  }
  if (!is_given_host(address->value)) {
    plan.note("MASTER_ADDR=" + quote_for_display(address->value) + " (" + address->source +
              ") is not a host name or address");
  }
  note_port(plan, *result.find("MASTER_PORT"));
}

// The note is for all tasks, including those that keep their number.
void note_renumbering(PlanBuilder& plan, const StepFacts& step, Order order) {
  if (order == Order::slurm || step.node_count == 1) return;
  if (order == Order::packed && counts_node_by_node(step, Order::slurm)) return;
  plan.note(
      "RANK differs from SLURM's numbers for the tasks, which MPI, JAX and Lightning use as "
      "ranks");
}

// SLURM gives each task the switch of its own node. If the map differs, it is out of date.
void note_switch(PlanBuilder& plan, const Facts& facts, Order order) {
  const auto& step = facts.step;
  const auto& task = facts.task;
  if (order != Order::by_switch || task.switch_address.empty() || step.switch_map.empty()) return;
  const std::vector<std::string> own{task.node_name};
  const std::string address = switch_paths(step.switch_map, own).front() + "." + task.node_name;
  if (address == task.switch_address || address == "." + task.switch_address) return;
  plan.note("scontrol says that this node is at " + quote_for_display(address) +
            ", but SLURM_TOPOLOGY_ADDR says " + quote_for_display(task.switch_address));
}

// For a node with one task that sees several GPUs.
void note_gpus_of_single_task(PlanBuilder& plan, const Facts& facts) {
  if (plan.mode() != Mode::rank || facts.task.local_task_count != 1) return;
  const auto visible = view_gpus(facts.task, facts.node).visible.value_or(0);
  if (visible < 2) return;
  const std::string gpus = std::to_string(visible);
  const bool has_workers = !plan.value_of("PET_NPROC_PER_NODE").empty();
  plan.note("one task on this node sees " + gpus + " GPUs, and a rank uses one; " +
            (has_workers ? "a torchrun that the task starts will run " +
                               plan.value_of("PET_NPROC_PER_NODE") +
                               " workers; start anything else as one task per GPU"
                         : std::string("start one task per GPU")) +
            " (--ntasks-per-node=" + gpus + ")");
}

}  // namespace

void note_launchers(PlanBuilder& builder, const Facts& facts) {
  const auto& step = facts.step;
  const auto& launcher = step.command.other_launcher;
  const bool reads_nodes = launcher == "accelerate launch" &&
                           !builder.value_of("PET_NNODES").empty() && step.task_count > 1;
  if (reads_nodes) {
    builder.note(launcher + " reads PET_NNODES, as torchrun does: without --num_machines the " +
                 std::to_string(step.task_count) +
                 " nodes train together, with --num_processes on each");
  } else if (!launcher.empty() && step.task_count > 1 && !step.command.is_for_each_node) {
    builder.note(launcher +
                 " starts processes by itself and does not know about the step's other tasks: "
                 "start the script directly, one task per GPU "
                 "(srun --ddp --ntasks-per-node=GPUS python "
                 "SCRIPT)");
  }
  // Several agents on a node do not know each other: the first one takes the port and trains by
  // itself, and the others fail because the port is in use.
  if (step.command.is_torchrun && builder.mode() == Mode::rank && facts.task.local_task_count > 1 &&
      !step.command.is_for_each_node) {
    builder.note("torchrun starts the ranks of a node itself, but this node runs " +
                 std::to_string(facts.task.local_task_count) +
                 " of them, which do not know each other: use --ntasks-per-node=1, or start the "
                 "script itself, one task per rank");
  }
  note_gpus_of_single_task(builder, facts);
}

void note_lightning(PlanBuilder& builder, const Plan& plan, const Facts& facts,
                    const Inherited& inherited) {
  const auto& own = facts.task.node_name;
  const bool is_leader = plan.mode == Mode::rank && plan.rank == 0 && plan.task_count > 1;
  const auto job = inherited.from_user("SLURM_NODELIST");
  if (!is_leader || facts.step.launcher != Launcher::slurm || own.empty() || !job) return;
  try {
    const auto nodes = expand_hostlist(*job);
    if (nodes.empty() || nodes.front() == own) return;
    builder.note("rank 0 is on " + own + ", not on the job's first node, " + nodes.front() +
                 ", where Lightning looks for it: for Lightning set SLURM_NODELIST=" + own +
                 " in the tasks, or start the step there (-w " + nodes.front() + ")");
  } catch (const UsageError&) {  // without a node list Lightning reports the error
  }
}

void add_notes(PlanBuilder& builder, const Plan& plan, const Facts& facts, Order order) {
  if (plan.mode == Mode::rank && order == Order::slurm) {
    note_layout(builder, facts.step, facts.task);
  }
  note_renumbering(builder, facts.step, order);
  note_switch(builder, facts, order);
  note_rendezvous(builder, plan, facts.step);
}

}  // namespace ddp::launch
