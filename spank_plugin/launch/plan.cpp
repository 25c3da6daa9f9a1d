#include "spank_plugin/launch/plan.h"

#include <algorithm>

#include "spank_plugin/launch/error.h"
#include "spank_plugin/launch/leader.h"
#include "spank_plugin/launch/master_port.h"
#include "spank_plugin/launch/text.h"

namespace ddp::launch {
namespace {

// Adds entries to a plan: the rules that hold for any variable are here, those of one are below.
class PlanBuilder {
 public:
  PlanBuilder(Plan& plan, const Inherited& inherited) : plan_(plan), inherited_(inherited) {}

  void set(std::string name, std::string value, std::string rule, std::string source) {
    plan_.entries.push_back(
        {std::move(name), std::move(value), std::move(rule), std::move(source), false});
  }

  // Order: command line, the user's variable, the user's SLURM_DDP, what this step was told
  // before, plugstack.conf. False if none of them says anything, so that it must be derived.
  template <typename T>
  bool set_as_asked(const std::string& name, const std::optional<Chosen<T>>& asked) {
    const auto set_asked = [&] {
      set(name, text_of(asked->value), "asked for", std::string(origin_name(asked->origin)));
      return true;
    };
    if (asked && asked->origin == Origin::command_line) return set_asked();
    if (const auto value = inherited_.from_user(name)) {
      plan_.entries.push_back({name, *value, "kept: the user set it", "environment", true});
      return true;
    }
    if (asked && asked->origin == Origin::environment) return set_asked();
    if (const auto value = inherited_.from_this_step(name)) {
      set(name, *value, "set before for this step", variable::kMarker);
      return true;
    }
    return asked && set_asked();
  }

  void note(std::string text) { plan_.notes.push_back(std::move(text)); }

 private:
  static std::string text_of(const std::string& value) { return value; }
  static std::string text_of(std::uint16_t value) { return std::to_string(value); }

  Plan& plan_;
  const Inherited& inherited_;
};

struct RankSources {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* node_rank;
};

RankSources rank_sources(Launcher launcher) {
  switch (launcher) {
    case Launcher::slurm:
      return {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
              "SLURM_NODEID"};
    case Launcher::open_mpi:
      return {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
              "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"};
    case Launcher::none:
      break;
  }
  return {"no launcher", "no launcher", "no launcher", "no launcher", "no launcher"};
}

void add_ranks(PlanBuilder& plan, const StepFacts& step, const TaskFacts& task) {
  const RankSources from = rank_sources(step.launcher);
  plan.set("RANK", std::to_string(task.rank), "number of this task in the step", from.rank);
  plan.set("WORLD_SIZE", std::to_string(step.task_count), "tasks of the step", from.size);
  plan.set("LOCAL_RANK", std::to_string(task.local_rank), "number of this task on its node",
           from.local_rank);
  plan.set("LOCAL_WORLD_SIZE", std::to_string(task.local_task_count), "tasks on this node",
           from.local_size);
  if (!task.node_rank) {
    plan.note("NODE_RANK and GROUP_RANK are not set: mpirun does not number its hosts");
    return;
  }
  const std::string node_rank = std::to_string(*task.node_rank);
  plan.set("NODE_RANK", node_rank, "number of this node in the step", from.node_rank);
  plan.set("GROUP_RANK", node_rank, "same as NODE_RANK (torchrun's name)", from.node_rank);
}

void add_leader(PlanBuilder& plan, const Facts& facts, const Settings& settings) {
  if (plan.set_as_asked("MASTER_ADDR", settings.master_addr)) return;
  const Leader leader = find_leader_address(facts);
  plan.set("MASTER_ADDR", leader.host, leader.rule, leader.source);
  if (facts.node.leader_lookup == NameLookup::only_loopback && facts.step.node_count > 1) {
    plan.note("on its own host " + leader.host +
              " leads to a loopback address only: a program that "
              "binds to that address cannot be reached by the other nodes");
  }
}

void add_port(PlanBuilder& plan, const Facts& facts, const Settings& settings) {
  if (plan.set_as_asked("MASTER_PORT", settings.master_port)) return;
  const PortChoice choice = choose_port(facts.step, settings);
  const std::uint16_t first = choice.candidates.front();
  const std::uint16_t port = facts.node.free_port.value_or(first);
  plan.set("MASTER_PORT", std::to_string(port),
           choice.rule + (port == first ? "" : ", the first that is free"), choice.source);
}

// Programs often take rank / LOCAL_WORLD_SIZE for the node: true only if SLURM filled node by node.
void note_layout(PlanBuilder& plan, const StepFacts& step, const TaskFacts& task) {
  if (!step.tasks_per_node) return;
  if (!step.tasks_per_node->uniform()) {
    plan.note(
        "the nodes run different numbers of tasks; programs that expect the same on each go "
        "wrong (--ntasks-per-node makes them equal)");
  }
  const bool in_order = task.rank == step.tasks_per_node->before(*task.node_rank) + task.local_rank;
  if (!in_order && !step.has_components) {
    plan.note("the ranks are not numbered node by node (distribution " +
              (step.distribution.empty() ? "block" : step.distribution) +
              "); programs that expect rank / LOCAL_WORLD_SIZE to be the node go wrong "
              "(--distribution=block)");
  }
}

void note_address(PlanBuilder& plan, const Plan& result, const StepFacts& step) {
  const PlanEntry* address = result.find("MASTER_ADDR");
  const bool local = address->value == "localhost" || address->value.starts_with("127.") ||
                     address->value == "::1";
  if (local && step.node_count != 1) {
    plan.note("MASTER_ADDR=" + address->value + " (" + address->source +
              ") leads every node to itself, but the step has several");
  }
  const PlanEntry* port = result.find("MASTER_PORT");
  if (!parse_decimal(port->value, 65'535)) {
    plan.note("MASTER_PORT=" + in_quotes(port->value) + " (" + port->source + ") is no port");
  }
}

void add_marker(Plan& plan, const StepFacts& step) {
  Marker marker{step.id, {}, step.reserved_ports};
  // Only what a user may set too: the rank variables are overwritten in any case.
  for (const auto* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (!plan.find(name)->kept) marker.names.emplace_back(name);
  }
  plan.entries.push_back({variable::kMarker, format_marker(marker),
                          "what this plan set, for steps inside this one", "this plan", false});
}

}  // namespace

const PlanEntry* Plan::find(std::string_view name) const noexcept {
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [name](const PlanEntry& e) { return e.name == name; });
  return entry == entries.end() ? nullptr : &*entry;
}

Plan make_plan(const Facts& facts, const Settings& settings, const Inherited& inherited) {
  Plan plan;
  plan.step = facts.step.id;
  plan.node = facts.task.node_name;
  plan.rank = facts.task.rank;
  plan.local_rank = facts.task.local_rank;
  plan.task_count = facts.step.task_count;
  plan.node_count = facts.step.node_count;
  PlanBuilder builder(plan, inherited);
  add_ranks(builder, facts.step, facts.task);
  add_leader(builder, facts, settings);
  add_port(builder, facts, settings);
  note_layout(builder, facts.step, facts.task);
  note_address(builder, plan, facts.step);
  add_marker(plan, facts.step);
  return plan;
}

}  // namespace ddp::launch
