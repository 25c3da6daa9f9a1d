// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/torchrun_variables.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/launch/plan/gpu_view.h"
#include "spank_plugin/launch/plan/leader.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/text.h"

namespace ddp::launch {
namespace {

bool has_one_task_per_node(const StepFacts& step) {
  if (!step.tasks_per_node) return step.node_count == 1 && step.task_count == 1;
  return step.task_count == step.node_count;
}

bool agents_may_change(const PlanBuilder& plan) {
  return plan.value_of("PET_NNODES").find(':') != std::string::npos;
}

// Chooses c10d if the agents may change or meet again, which a static rendezvous does not support.
void add_backend(PlanBuilder& plan, const Settings& settings) {
  const std::string restarts = plan.value_of("PET_MAX_RESTARTS");
  const bool elastic = agents_may_change(plan) || (!restarts.empty() && restarts != "0");
  if (settings.store) {
    plan.suggest("PET_RDZV_BACKEND", "c10d", "the agents meet at a store", "store");
  } else if (settings.rendezvous) {
    const std::string origin(origin_name(settings.rendezvous->origin));
    plan.suggest("PET_RDZV_BACKEND", std::string(word_for(settings.rendezvous->value)),
                 "requested by " + origin, origin);
  } else {
    plan.suggest(
        "PET_RDZV_BACKEND", elastic ? "c10d" : "static",
        elastic ? "the number of agents may change" : "rank 0 stays on the host of MASTER_ADDR",
        elastic ? "PET_NNODES, PET_MAX_RESTARTS" : "built in");
  }
}

// torchrun's own values are 30 s for more nodes to join once there are enough, and 15 s until a
// node that no longer answers is given up. PyTorch 1.13 knows only the first of the three.
constexpr const char* kQuickRendezvous =
    ",last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=5";

// torchrun finds the host of the store by comparing host names, which fails if a host has two
// names, so the plan sets it explicitly.
void add_c10d(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
              const Settings& settings) {
  if (!plan.set_as_requested("PET_RDZV_ENDPOINT", settings.store)) {
    plan.suggest("PET_RDZV_ENDPOINT",
                 endpoint(plan.value_of("MASTER_ADDR"), plan.value_of("MASTER_PORT")),
                 "the store of the agents' rendezvous", "MASTER_ADDR, MASTER_PORT");
  }
  std::string conf = numbers.rank == 0 && !settings.store ? "is_host=1" : "is_host=0";
  if (agents_may_change(plan)) conf += kQuickRendezvous;
  plan.suggest("PET_RDZV_CONF", conf,
               settings.store ? "no agent hosts the store" : "the agent of rank 0 hosts the store",
               settings.store ? "store" : numbers.source);
  if (!facts.task.node_name.empty()) {
    plan.suggest("PET_LOCAL_ADDR", address_of_node(facts.task.node_name, facts, settings),
                 "this node, by the name or address that MASTER_ADDR would have",
                 "SLURMD_NODENAME");
  }
}

void add_static(PlanBuilder& plan) {
  plan.suggest("PET_MASTER_ADDR", plan.value_of("MASTER_ADDR"), "same as MASTER_ADDR",
               "MASTER_ADDR");
  plan.suggest("PET_MASTER_PORT", plan.value_of("MASTER_PORT"), "same as MASTER_PORT",
               "MASTER_PORT");
}

void add_workers(PlanBuilder& plan, const Facts& facts) {
  const GpuView gpus = view_gpus(facts.task, facts.node);
  if (gpus.visible && *gpus.visible > 0) {
    plan.suggest("PET_NPROC_PER_NODE", std::to_string(*gpus.visible), "one worker for each GPU",
                 gpus.source);
  } else if (!plan.keep_if_users("PET_NPROC_PER_NODE") &&
             (plan.mode() == Mode::torchrun || facts.step.command.mentions_torchrun)) {
    plan.note(
        "torchrun will start one worker per node, because SLURM gave the step no GPUs to count; "
        "set PET_NPROC_PER_NODE, or use --nproc_per_node");
  }
}

}  // namespace

Mode choose_mode(const StepFacts& step, const Settings& settings) {
  const bool possible = has_one_task_per_node(step);
  if (settings.mode.value != Mode::torchrun) {
    const bool is_agent =
        step.command.is_torchrun && !(step.command.is_for_each_node && step.node_count > 1);
    return settings.mode.value == Mode::automatic && possible && is_agent ? Mode::torchrun
                                                                          : Mode::rank;
  }
  if (possible) return Mode::torchrun;
  throw LaunchError(
      "torchrun starts the ranks of a node itself, so it needs one task per node, but " +
      std::to_string(step.task_count) + " tasks run on " +
      (step.node_count == 0 ? "several" : std::to_string(step.node_count)) +
      " nodes; use srun --ntasks-per-node=1");
}

namespace {

// Agents of several steps meet at a store, as of a node that is back.
void add_id(PlanBuilder& plan, const StepFacts& step, const Settings& settings) {
  std::string id = settings.store ? step.id.substr(0, step.id.find('.')) : step.id;
  if (step.restarts != 0) id.append(".").append(std::to_string(step.restarts));
  plan.suggest("PET_RDZV_ID", id, settings.store ? "job and restart" : "job, step and restart",
               settings.store ? "SLURM_JOB_ID" : "SLURM_JOB_ID, SLURM_STEP_ID");
}

void add_options(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                 const Settings& settings) {
  if (!plan.set_as_requested("PET_NNODES", settings.agents)) {
    plan.suggest("PET_NNODES", std::to_string(facts.step.node_count), "nodes of the step",
                 "SLURM_STEP_NUM_NODES");
  }
  plan.set("PET_NODE_RANK", std::to_string(numbers.rank), "one task per node: its rank",
           numbers.source);
  add_workers(plan, facts);
  if (!plan.set_as_requested("PET_MAX_RESTARTS", settings.restarts)) {
    plan.keep_if_users("PET_MAX_RESTARTS");
  }
  add_backend(plan, settings);
  add_id(plan, facts.step, settings);
  if (plan.value_of("PET_RDZV_BACKEND") == "c10d") return add_c10d(plan, facts, numbers, settings);
  add_static(plan);
}

}  // namespace

void add_torchrun(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                  const Settings& settings) {
  // A framework that finds RANK assumes that its process is a rank, but the agent is not one.
  for (const auto* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
                           "GROUP_WORLD_SIZE", "NODE_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE"}) {
    plan.remove(name, "torchrun's workers get their own");
  }
  // torchrun does not read NNODES, but scripts use --nnodes=$NNODES.
  plan.set("NNODES", std::to_string(facts.step.node_count), "nodes of the step",
           "SLURM_STEP_NUM_NODES");
  add_options(plan, facts, numbers, settings);
}

void add_torchrun_beside_ranks(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                               const Settings& settings) {
  const auto& step = facts.step;
  const bool may_be_agent = settings.mode.value == Mode::automatic &&
                            step.launcher == Launcher::slurm && has_one_task_per_node(step);
  const bool is_for_each_node = step.command.is_for_each_node && step.node_count > 1;
  if (may_be_agent && !is_for_each_node) return add_options(plan, facts, numbers, settings);
  if (may_be_agent) {
    plan.note("the command has " +
              std::string(step.command.other_launcher.empty() ? "--standalone or --nnodes=1"
                                                              : "--num_machines=1") +
              ": it trains on each of the " + std::to_string(step.node_count) +
              " nodes by itself; without that option all nodes train together");
  }
}

std::optional<std::uint32_t> planned_workers(const PlanBuilder& plan) {
  const auto workers = parse_decimal(plan.value_of("PET_NPROC_PER_NODE"), 65'536);
  if (!workers || *workers == 0) return std::nullopt;
  return static_cast<std::uint32_t>(*workers);
}

}  // namespace ddp::launch
