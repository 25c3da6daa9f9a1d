// SPDX-License-Identifier: Apache-2.0
// Reads StepFacts and TaskFacts from SLURM's environment variables.
#include <limits>

#include "base/hostlist.h"
#include "base/text.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/facts.h"
#include "spank_plugin/launch/step/marker.h"
#include "spank_plugin/launch/step/port_ranges.h"
#include "spank_plugin/launch/step/process_map.h"

namespace ddp::launch {
namespace {

constexpr std::uint64_t kMaxId = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMaxTasks = std::numeric_limits<std::int32_t>::max();

std::string required(const EnvLookup& environment, const std::string& name) {
  auto value = environment(name);
  if (!value) throw LaunchError(name + " is not set; is this process a task of a SLURM step?");
  return *value;
}

std::uint32_t to_number(const std::string& name, std::string_view text, std::uint64_t max) {
  const auto number = parse_decimal(text, max);
  if (!number)
    throw LaunchError(name + "=" + quote_for_display(text) + " is not a number up to " +
                      std::to_string(max));
  return static_cast<std::uint32_t>(*number);
}

std::uint32_t required_number(const EnvLookup& environment, const std::string& name,
                              std::uint64_t max) {
  return to_number(name, required(environment, name), max);
}

std::uint32_t optional_number(const EnvLookup& environment, const std::string& name,
                              std::uint32_t otherwise) {
  const auto value = environment(name);
  return value ? to_number(name, *value, kMaxId) : otherwise;
}

void check_layout(const StepFacts& step) {
  if (step.task_count == 0) throw LaunchError("SLURM_STEP_NUM_TASKS is 0");
  if (step.nodes.size() == step.node_count && step.tasks_per_node->nodes() == step.node_count &&
      step.tasks_per_node->tasks() == step.task_count) {
    return;
  }
  throw LaunchError("SLURM's step variables contradict each other: SLURM_STEP_NUM_NODES=" +
                    std::to_string(step.node_count) +
                    ", SLURM_STEP_NUM_TASKS=" + std::to_string(step.task_count) +
                    ", but SLURM_STEP_NODELIST has " + std::to_string(step.nodes.size()) +
                    " nodes and SLURM_STEP_TASKS_PER_NODE has " +
                    std::to_string(step.tasks_per_node->tasks()) + " tasks on " +
                    std::to_string(step.tasks_per_node->nodes()) + "; were they set by hand?");
}

// Jobs of several components list the nodes of each; older releases use PACK instead of HET.
std::vector<std::string> read_component_nodes(const EnvLookup& environment) {
  constexpr std::uint32_t kMaxComponents = 128;  // SLURM's MAX_HET_JOB_COMPS
  std::vector<std::string> lists;
  for (std::uint32_t i = 0; i < kMaxComponents; ++i) {
    auto list = environment("SLURM_JOB_NODELIST_HET_GROUP_" + std::to_string(i));
    if (!list) list = environment("SLURM_JOB_NODELIST_PACK_GROUP_" + std::to_string(i));
    if (!list) break;
    lists.push_back(*list);
  }
  return lists;
}

// Reads the location of rank 0 for steps where it does not follow from the node list.
void read_rank_zero_hints(const EnvLookup& environment, StepFacts& step) {
  step.distribution = environment("SLURM_DISTRIBUTION").value_or("");
  step.has_components = environment("SLURM_HET_SIZE").has_value() ||
                        optional_number(environment, variable::kComponents, 1) > 1;
  if (step.has_components) step.component_nodes = read_component_nodes(environment);
  step.rank_zero_in_hostfile = environment(variable::kRankZeroHost);
  step.arbitrary_nodes = environment("SLURM_ARBITRARY_NODELIST").value_or("");
  // The map belongs to this step only if this step uses PMIx; otherwise it is inherited from an
  // enclosing step.
  const auto map = environment("SLURM_PMIX_MAPPING_SERV");
  if (map && environment("SLURM_MPI_TYPE").value_or("").starts_with("pmix")) {
    step.rank_zero_in_map = node_of_rank_zero(*map, step.task_count, step.node_count);
  }
}

// SLURM's mpi/cray_shasta gives the first of the reserved ports to Cray's PMI, for its control
// connections. The variable that names the port may come from an enclosing step, so it is used only
// if this rule does not apply.
std::optional<std::uint16_t> read_pmi_port(const EnvLookup& environment, const StepFacts& step) {
  const auto reserved = parse_port_ranges(step.reserved_ports, "SLURM_STEP_RESV_PORTS");
  if (!reserved.empty() && environment("SLURM_MPI_TYPE").value_or("").starts_with("cray_shasta")) {
    return reserved.front().first;
  }
  const auto told = parse_decimal(environment("PMI_CONTROL_PORT").value_or(""), 65'535);
  if (!told) return std::nullopt;
  return static_cast<std::uint16_t>(*told);
}

std::vector<std::uint32_t> parse_task_ids(std::string_view text) {
  std::vector<std::uint32_t> ids;
  if (text.size() > kMaxListText) throw LaunchError("SLURM_GTIDS is too long");
  for (const auto id : split(text, ',')) ids.push_back(to_number("SLURM_GTIDS", id, kMaxTasks));
  return ids;
}

// In a step of several components SLURM_NODEID counts in component order, while the list is sorted
// over all components, so the node's place in the list is found by its name.
std::uint32_t place_in_list(const StepFacts& step, const TaskFacts& task) {
  for (std::uint32_t i = 0; step.has_components && i < step.nodes.size(); ++i) {
    if (step.nodes[i] == task.node_name) return i;
  }
  return *task.node_rank;
}

// The steps of batch scripts and interactive shells have numbers close to the largest, which since
// SLURM 25.11 are written as negative ones.
std::uint32_t read_step_number(const EnvLookup& environment) {
  const char* const name = "SLURM_STEP_ID";
  const std::string text = environment(name).value_or("");
  if (!text.starts_with('-')) return required_number(environment, name, kMaxId);
  return ~to_number(name, std::string_view(text).substr(1), 100) + 1;
}

void check_task(const StepFacts& step, const TaskFacts& task) {
  if (task.rank >= step.task_count) {
    throw LaunchError("SLURM_PROCID=" + std::to_string(task.rank) +
                      " is not below SLURM_STEP_NUM_TASKS=" + std::to_string(step.task_count));
  }
  if (task.local_rank >= task.local_task_count) {
    throw LaunchError("SLURM_LOCALID=" + std::to_string(task.local_rank) + ", but this node runs " +
                      std::to_string(task.local_task_count) + " tasks");
  }
  if (task.ranks_on_node.empty()) return;
  if (task.ranks_on_node.size() != task.local_task_count ||
      task.ranks_on_node[task.local_rank] != task.rank) {
    throw LaunchError("SLURM_GTIDS does not fit SLURM_PROCID=" + std::to_string(task.rank) +
                      ", SLURM_LOCALID=" + std::to_string(task.local_rank) +
                      " and the tasks per node, " + std::to_string(task.local_task_count));
  }
}

}  // namespace

StepFacts read_slurm_step(const EnvLookup& environment) {
  StepFacts step;
  step.launcher = Launcher::slurm;
  const auto job_id = required_number(environment, "SLURM_JOB_ID", kMaxId);
  const auto step_id = read_step_number(environment);
  step.restarts = optional_number(environment, "SLURM_RESTART_COUNT", 0);
  step.id = std::to_string(job_id) + "." + std::to_string(step_id);
  // The key is linear, so that neighboring jobs never get the same port before the range wraps. The
  // factors are primes, so that the steps of one job do not collide with those of its neighbors. It
  // includes restarts, so that a requeued job does not collide with leftovers of its first run.
  step.port_key =
      std::uint64_t{job_id} + 1009 * std::uint64_t{step_id} + 257 * std::uint64_t{step.restarts};
  step.task_count = required_number(environment, "SLURM_STEP_NUM_TASKS", kMaxTasks);
  step.node_count = required_number(environment, "SLURM_STEP_NUM_NODES", kMaxHosts);
  step.nodes = expand_hostlist(required(environment, "SLURM_STEP_NODELIST"));
  step.tasks_per_node = TasksPerNode::parse(required(environment, "SLURM_STEP_TASKS_PER_NODE"));
  check_layout(step);
  read_rank_zero_hints(environment, step);
  step.switch_map = environment(variable::kSwitchMap).value_or("");
  step.node_addresses = environment(variable::kNodeAddresses).value_or("");
  step.reserved_ports = environment("SLURM_STEP_RESV_PORTS").value_or("");
  if (Inherited(environment, step.id).are_ports_of_another_step(step.reserved_ports)) {
    step.reserved_ports.clear();
  }
  step.pmi_port = read_pmi_port(environment, step);
  return step;
}

TaskFacts read_slurm_task(const EnvLookup& environment, const StepFacts& step) {
  TaskFacts task;
  task.rank = required_number(environment, "SLURM_PROCID", kMaxTasks);
  task.local_rank = required_number(environment, "SLURM_LOCALID", kMaxTasks);
  task.node_rank = required_number(environment, "SLURM_NODEID", kMaxHosts);
  task.node_name = environment("SLURMD_NODENAME").value_or("");
  task.local_task_count = step.tasks_per_node->at(place_in_list(step, task));
  if (const auto ids = environment("SLURM_GTIDS")) task.ranks_on_node = parse_task_ids(*ids);
  check_task(step, task);
  task.switch_address = environment("SLURM_TOPOLOGY_ADDR").value_or("");
  task.gpus = read_gpu_lists(environment);
  task.gpu_numbers = read_gpu_numbers(environment);
  task.gpus_on_node = optional_number(environment, "SLURM_GPUS_ON_NODE", 0);
  task.cpus_on_node = optional_number(environment, "SLURM_CPUS_ON_NODE", 0);
  return task;
}

}  // namespace ddp::launch
