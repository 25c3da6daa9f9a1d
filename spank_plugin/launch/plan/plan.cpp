// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/plan.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/launch/plan/cpu_threads.h"
#include "spank_plugin/launch/plan/gpu_view.h"
#include "spank_plugin/launch/plan/leader.h"
#include "spank_plugin/launch/plan/master_port.h"
#include "spank_plugin/launch/plan/plan_builder.h"
#include "spank_plugin/launch/plan/plan_notes.h"
#include "spank_plugin/launch/plan/proxy_exceptions.h"
#include "spank_plugin/launch/plan/rank_order.h"
#include "spank_plugin/launch/plan/rank_variables.h"
#include "spank_plugin/launch/plan/torchrun_variables.h"

namespace ddp::launch {
namespace {

std::string this_node(const TaskFacts& task) {
  return task.node_name.empty() ? "this node" : task.node_name;
}

void add_leader(PlanBuilder& plan, const Facts& facts, const Settings& settings) {
  if (plan.set_as_requested("MASTER_ADDR", settings.master_addr)) return;
  const Leader leader = find_leader_address(facts, settings);
  plan.suggest("MASTER_ADDR", leader.host, leader.rule, leader.source);
  const bool is_slurms = leader.source == kSlurmsAddress;
  if (is_slurms) {
    plan.note_of_node(this_node(facts.task) + ": " + facts.node.why_slurms_address +
                      ", so MASTER_ADDR is " + leader.host +
                      ", by which SLURM reaches rank 0's host; correct the nodes' names in DNS or "
                      "/etc/hosts for programs that use them");
  }
  if (facts.node.lacks_suffix) {
    plan.note_of_node("addr_suffix=" + settings.addr_suffix.value +
                      " of plugstack.conf is left out on " + facts.task.node_name + ", where " +
                      with_suffix(find_leader(facts.step, settings.order.value).host,
                                  settings.addr_suffix.value) +
                      " does not resolve");
  }
  if (!is_slurms && facts.node.leader_lookup == NameLookup::only_local &&
      facts.step.node_count > 1) {
    plan.note("on its own host " + leader.host +
              " resolves to a loopback address only: a program that "
              "binds to that address cannot be reached by the other nodes");
  }
  if (!is_slurms && is_unanswered(facts.node.leader_lookup) && facts.step.node_count > 1) {
    plan.note_of_node("the name service of " + this_node(facts.task) + " did not answer for " +
                      leader.host + ", rank 0's host" +
                      (facts.node.leader_lookup == NameLookup::timed_out ? ", in time" : "") +
                      "; the step continues with the name; if ranks do not find each other, give "
                      "an address with --ddp=master_addr=ADDRESS");
  }
}

void add_port(PlanBuilder& plan, const Facts& facts, const Settings& settings) {
  if (plan.set_as_requested("MASTER_PORT", settings.master_port)) return;
  const PortChoice choice = choose_port(facts.step, settings);
  const std::uint16_t first = choice.candidates.front();
  const std::uint16_t port = facts.node.free_port.value_or(first);
  plan.suggest("MASTER_PORT", std::to_string(port),
               choice.rule + (port == first ? "" : ", the first that is free"), choice.source);
}

// With GpuPolicy::shared, sets the lists of all GPUs, because a task's own list hides the GPUs of
// the other tasks.
void add_gpus(PlanBuilder& plan, Facts& facts, const Settings& settings) {
  auto& task = facts.task;
  auto& node = facts.node;
  for (const auto& list : unmasked_lists(task, node, settings.gpus.value)) {
    plan.set(list.variable, list.devices, "all GPUs of the step on this node (gpus=shared)",
             std::string(origin_name(settings.gpus.origin)));
    std::replace_if(
        task.gpus.begin(), task.gpus.end(),
        [&](const GpuList& own) { return own.variable == list.variable; }, list);
  }
  for (auto& text : gpu_notes(view_gpus(task, node), task, settings.gpus.value))
    plan.note(std::move(text));
}

void add_threads(PlanBuilder& plan, const Facts& facts, const Settings& settings,
                 std::optional<std::uint32_t> ranks) {
  const ThreadPolicy& policy = settings.threads.value;
  if (policy.kind == ThreadPolicy::Kind::off) return;
  if (policy.kind == ThreadPolicy::Kind::count) {
    const std::optional<Chosen<std::string>> requested{
        {std::to_string(policy.count), settings.threads.origin}};
    plan.set_as_requested("OMP_NUM_THREADS", requested);
    return;
  }
  if (!facts.task.cpus || !ranks) return;
  const ThreadCount count =
      count_threads(*facts.task.cpus, facts.task.cpus_on_node, facts.task.local_task_count, *ranks);
  plan.suggest("OMP_NUM_THREADS", std::to_string(count.threads), count.rule, "CPU affinity");
}

// srun of SLURM 22.05 and 23.02 ignores the value of `sbatch -c` and gives each task one CPU.
void note_lost_cpus(PlanBuilder& plan, const Facts& facts, const Inherited& inherited) {
  const auto requested = inherited.from_user("SLURM_CPUS_PER_TASK");
  const auto count = requested ? parse_decimal(*requested, 65'536) : std::nullopt;
  if (facts.step.launcher != Launcher::slurm || !facts.task.cpus || !count) return;
  const std::uint32_t cpus = facts.task.cpus->cpus;
  if (cpus >= *count || cpus >= facts.task.cpus->online) return;
  plan.note("SLURM_CPUS_PER_TASK=" + *requested + ", but this task has " + std::to_string(cpus) +
            (cpus == 1 ? " CPU" : " CPUs") + ": add -c " + *requested +
            " to srun, or export SRUN_CPUS_PER_TASK=" + *requested);
}

// A task that may start torchrun becomes one rank per worker of torchrun. If the number of workers
// is unknown, OMP_NUM_THREADS is left to torchrun, which sets it to 1 if it is unset.
std::optional<std::uint32_t> ranks_in_task(const PlanBuilder& plan, const StepFacts& step) {
  if (const auto workers = planned_workers(plan)) return workers;
  if (step.command.mentions_torchrun) return std::nullopt;
  return 1;
}

}  // namespace

const PlanEntry* Plan::find(std::string_view name) const noexcept {
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [name](const PlanEntry& e) { return e.name == name; });
  return entry == entries.end() ? nullptr : &*entry;
}

std::vector<std::string> Plan::own_notes() const {
  std::vector<std::string> own;
  if (rank == 0) own = notes;
  if (local_rank == 0) own.insert(own.end(), node_notes.begin(), node_notes.end());
  return own;
}

Plan make_plan(const Facts& given, const Settings& requested, const Inherited& inherited) {
  Facts facts = given;
  Settings settings = requested;
  std::string no_order;  // why the site's order is not possible
  settings.order.value = possible_order(facts.step, requested.order, no_order);
  const RankNumbers numbers = number_task(facts.step, facts.task, settings.order.value);
  Plan plan;
  plan.step = facts.step.id;
  plan.node = facts.task.node_name;
  plan.mode = choose_mode(facts.step, settings);
  plan.rank = numbers.rank;
  plan.local_rank = facts.task.local_rank;
  plan.local_task_count = facts.task.local_task_count;
  plan.task_count = facts.step.task_count;
  plan.node_count = facts.step.node_count;
  PlanBuilder builder(plan, inherited);
  if (!no_order.empty()) {
    builder.note(
        "the ranks keep SLURM's numbers, although plugstack.conf asks for another order: " +
        no_order);
  }
  add_gpus(builder, facts, settings);
  if (plan.mode == Mode::rank) add_ranks(builder, facts, numbers, settings);
  add_leader(builder, facts, settings);
  add_port(builder, facts, settings);
  if (plan.mode == Mode::torchrun) {
    add_torchrun(builder, facts, numbers, settings);
    add_threads(builder, facts, settings, planned_workers(builder));
  } else {
    add_jax(builder, facts, numbers, settings);
    if (settings.tf_config.value) add_tf_config(builder, facts, numbers, settings);
    add_torchrun_beside_ranks(builder, facts, numbers, settings);
    add_threads(builder, facts, settings, ranks_in_task(builder, facts.step));
  }
  plan.tasks_may_leave = facts.step.command.is_for_each_node || facts.step.command.may_lose_nodes ||
                         is_range_of_nodes(builder.value_of("PET_NNODES"));
  note_launchers(builder, facts);
  note_lost_cpus(builder, facts, inherited);
  note_lightning(builder, plan, facts, inherited);
  if (plan.mode == Mode::rank) add_proxy_exceptions(builder, facts, settings, inherited);
  for (const auto& entry : facts.fabric.entries) builder.add(entry);
  for (const auto& warning : facts.fabric.warnings) builder.note(warning);
  for (const auto& warning : facts.fabric.node_warnings) {
    builder.note_of_node((plan.node.empty() ? "this node" : plan.node) + ": " + warning);
  }
  plan.remarks = facts.fabric.remarks;
  plan.fabric = facts.fabric.summary;
  add_notes(builder, plan, facts, settings.order.value);
  builder.remove_left_overs();
  builder.set_marker(facts.step);
  return plan;
}

}  // namespace ddp::launch
