// SPDX-License-Identifier: Apache-2.0
// The known facts about a job step before it starts, without the user's settings. StepFacts are the
// same for all tasks of the step: everything that all tasks must agree on (leader, port) is derived
// from them alone. TaskFacts differ between tasks; NodeFacts were gathered on the task's node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/launch/step/environment.h"
#include "spank_plugin/launch/step/step_command.h"
#include "spank_plugin/launch/step/tasks_per_node.h"

namespace ddp::launch {

// The program that started the tasks.
enum class Launcher { slurm, open_mpi, none };

struct StepFacts {
  Launcher launcher = Launcher::none;
  std::string id;  // "12.0" for SLURM; differs between steps, the same in all tasks of one step
  std::uint64_t port_key = 0;  // differs between neighboring steps, for their computed ports
  std::uint32_t task_count = 1;
  std::uint32_t node_count = 1;    // 0 if unknown (mpirun over several hosts)
  std::vector<std::string> nodes;  // in SLURM's order; empty if unknown
  std::optional<TasksPerNode> tasks_per_node;
  std::string distribution;                  // SLURM_DISTRIBUTION; empty for the default
  bool has_components = false;               // srun a : b
  std::vector<std::string> component_nodes;  // node list of each component of the job, unparsed
  std::optional<std::uint32_t> rank_zero_in_map;  // index into nodes, by SLURM's process map
  std::optional<std::string> rank_zero_in_hostfile;
  std::string arbitrary_nodes;  // SLURM_ARBITRARY_NODELIST of the job, in its order, unparsed
  std::string reserved_ports;   // SLURM_STEP_RESV_PORTS, if they belong to this step
  std::optional<std::uint16_t> pmi_port;  // port used by another service of the step
  std::uint32_t restarts = 0;             // SLURM_RESTART_COUNT
  std::string switch_map;                 // see switch_map.h; empty unless srun determined it
  std::string node_addresses;             // see node_address.h; empty unless srun asked for them
  StepCommand command;                    // the command that the tasks run
};

// The CPUs that a task may run on.
struct CpuFacts {
  std::uint32_t cpus = 0;                   // hardware threads in its affinity mask
  std::uint32_t cores = 0;                  // distinct cores among them
  std::uint32_t online = 0;                 // hardware threads of the whole node
  std::vector<std::uint32_t> numbers = {};  // the CPU numbers in the mask, ascending
};

// A variable that selects the GPUs a process sees, e.g. CUDA_VISIBLE_DEVICES=0,1.
struct GpuList {
  std::string variable;
  std::string devices;

  bool operator==(const GpuList&) const = default;
};

struct TaskFacts {
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::uint32_t local_task_count = 1;
  std::optional<std::uint32_t> node_rank;  // nullopt if unknown (mpirun over several hosts)
  std::string node_name;
  std::vector<std::uint32_t>
      ranks_on_node;               // SLURM_GTIDS, ascending by local rank; empty if unknown
  std::string switch_address;      // SLURM_TOPOLOGY_ADDR of this node; empty if unknown
  std::vector<GpuList> gpus;       // as this task sees them
  std::string gpu_numbers;         // the same GPUs by their numbers on the node, SLURM_STEP_GPUS
  std::uint32_t gpus_on_node = 0;  // the step's GPUs, SLURM_GPUS_ON_NODE; 0 if unknown or none
  std::uint32_t cpus_on_node = 0;  // the step's CPUs, SLURM_CPUS_ON_NODE; 0 if unknown
  std::optional<CpuFacts> cpus;    // nullopt if the caller did not query the kernel
  bool hides_gpu_devices = false;  // GPU device files exist that this task may not open
};

// The result of resolving the name of rank 0's host on this node.
enum class NameLookup {
  not_done,
  usable,
  only_local,    // loopback addresses, or link-local ones of IPv6 without their interface
  elsewhere,     // addresses of another host, although the step's only node is here
  unknown_name,  // the name service reports that the name does not exist
  no_answer,     // the name service is unreachable or fails
  timed_out
};

// True if nothing is known about the name, for example after a lost packet: it may resolve at the
// next attempt.
constexpr bool is_unanswered(NameLookup lookup) noexcept {
  return lookup == NameLookup::no_answer || lookup == NameLookup::timed_out;
}

struct NodeFacts {
  NameLookup leader_lookup = NameLookup::not_done;  // for the name with the suffix, if one is used
  // A free port for MASTER_PORT. Set only if the node may choose for the whole step, because the
  // step has no other node.
  std::optional<std::uint16_t> free_port;
  // Numeric addresses of MASTER_ADDR, and of another node of the step if MASTER_ADDR is a loopback
  // address.
  std::vector<std::string> leader_addresses = {};
  std::vector<std::string> peer_addresses = {};
  // The step's values on this node, before SLURM narrowed them for each task.
  std::vector<GpuList> gpus = {};
  std::string gpu_numbers = {};                        // SLURM_STEP_GPUS
  std::optional<std::uint16_t> free_second_port = {};  // like free_port
  // SLURM's address of rank 0's host, and the reason, a sentence about a name. Set only if SLURM's
  // addresses must replace the nodes' names on this node.
  std::optional<std::string> slurms_address = {};
  std::string why_slurms_address = {};
  // Names with the site's addr_suffix do not resolve on this node: names are used unchanged.
  bool lacks_suffix = false;
};

// One variable of a plan, with its reason.
struct PlanEntry {
  std::string name;
  std::string value;
  std::string rule;      // one phrase
  std::string source;    // the variable, option or file of the value
  bool kept = false;     // the user's own value, so nothing is set
  bool removed = false;  // inherited, wrong for this step, and removed; has no value
};

// The part of the plan that fabric/ computes for the node's network.
struct FabricPart {
  std::vector<PlanEntry> entries;
  std::vector<std::string> warnings;            // for all users
  std::vector<std::string> remarks;             // shown if an explanation is requested
  std::string summary;                          // one phrase; empty if there is nothing to say
  std::vector<std::string> node_warnings = {};  // of failures on this node only
};

struct Facts {
  StepFacts step;
  TaskFacts task;
  NodeFacts node;
  FabricPart fabric = {};
};

// Returns the variables that select visible GPUs, in order of precedence.
std::vector<GpuList> read_gpu_lists(const EnvLookup& environment);

// Returns SLURM_STEP_GPUS, the GPUs that SLURM assigned, by their numbers on the node ("4,5"),
// independent of CUDA's numbering; empty if not set.
std::string read_gpu_numbers(const EnvLookup& environment);

// Determines the program that started this process from its variables. mpirun inside a SLURM step
// counts as mpirun.
Launcher detect_launcher(const EnvLookup& environment);

// These two functions use SLURM's step variables (SLURM_STEP_*), never the job's, which are wrong
// for any step smaller than the job. They throw LaunchError, naming the variable, if one is
// missing, malformed or contradicts another. read_slurm_step needs only variables that exist before
// the tasks are forked.
StepFacts read_slurm_step(const EnvLookup& environment);
TaskFacts read_slurm_task(const EnvLookup& environment, const StepFacts& step);

// Reads the variables of Open MPI's mpirun. `host_name` is this machine's.
Facts read_open_mpi(const EnvLookup& environment, const std::string& host_name);

// Returns the facts of a process without a launcher, a world of one rank.
Facts single_process(const EnvLookup& environment, const std::string& host_name,
                     std::uint32_t process_id);

}  // namespace ddp::launch
