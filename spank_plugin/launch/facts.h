#pragma once
// What is known about a job step before it starts, apart from what was asked for. StepFacts are the
// same for all tasks of the step: whatever all tasks must agree on (leader, port) is derived from
// them alone. TaskFacts differ per task; NodeFacts are what was found out on the task's node.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/launch/environment.h"
#include "spank_plugin/launch/step_command.h"
#include "spank_plugin/launch/tasks_per_node.h"

namespace ddp::launch {

// Who started the tasks.
enum class Launcher { slurm, open_mpi, none };

struct StepFacts {
  Launcher launcher = Launcher::none;
  std::string id;              // "12.0" for SLURM; differs between steps, same in all tasks of one
  std::uint64_t port_key = 0;  // numbers the step: neighbors get different computed ports
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
  std::string reserved_ports;   // SLURM_STEP_RESV_PORTS, if they are this step's own
  std::optional<std::uint16_t> pmi_port;  // that another service of the step listens on
  std::uint32_t restarts = 0;             // SLURM_RESTART_COUNT
  std::string switch_map;                 // see switch_map.h; empty unless srun found it out
  StepCommand command;                    // that the tasks run
};

// The CPUs that a task may run on.
struct CpuFacts {
  std::uint32_t cpus = 0;                   // hardware threads in its affinity mask
  std::uint32_t cores = 0;                  // different cores among them
  std::uint32_t online = 0;                 // hardware threads of the whole node
  std::vector<std::uint32_t> numbers = {};  // of those in the mask, ascending
};

// A variable that says which GPUs a process sees, e.g. CUDA_VISIBLE_DEVICES=0,1.
struct GpuList {
  std::string variable;
  std::string devices;

  bool operator==(const GpuList&) const = default;
};

struct TaskFacts {
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::uint32_t local_task_count = 1;
  std::optional<std::uint32_t> node_rank;  // nothing if unknown (mpirun over several hosts)
  std::string node_name;
  std::vector<std::uint32_t>
      ranks_on_node;               // SLURM_GTIDS, ascending by local rank; empty if unknown
  std::string switch_address;      // SLURM_TOPOLOGY_ADDR of this node; empty if unknown
  std::vector<GpuList> gpus;       // as this task sees them
  std::string gpu_numbers;         // the same by their numbers on the node, SLURM_STEP_GPUS
  std::uint32_t gpus_on_node = 0;  // of the step, SLURM_GPUS_ON_NODE; 0 unknown or none
  std::uint32_t cpus_on_node = 0;  // of the step, SLURM_CPUS_ON_NODE; 0 unknown
  std::optional<CpuFacts> cpus;    // nothing if the caller did not ask the kernel
  bool hides_gpu_devices = false;  // device files of GPUs exist that this task may not open
};

// What the name of rank 0's host turned into on this node.
enum class NameLookup {
  not_done,
  usable,
  only_loopback,
  unknown_name,  // the name service says that there is no such name
  no_answer,     // it is not reachable, or fails
  timed_out
};

// True if nothing is known of the name, as after a lost packet: it may well lead somewhere.
constexpr bool is_unanswered(NameLookup lookup) noexcept {
  return lookup == NameLookup::no_answer || lookup == NameLookup::timed_out;
}

struct NodeFacts {
  NameLookup leader_lookup = NameLookup::not_done;  // of its name with the suffix, if one is used
  // Set where the node may choose for the whole step, because the step has no other node.
  std::optional<std::uint16_t> free_port;
  // Numeric, of MASTER_ADDR; of another node of the step where that is a loopback address.
  std::vector<std::string> leader_addresses = {};
  std::vector<std::string> peer_addresses = {};
  // Of the step on this node, before SLURM gave each task its own.
  std::vector<GpuList> gpus = {};
  std::string gpu_numbers = {};                        // SLURM_STEP_GPUS
  std::optional<std::uint16_t> free_second_port = {};  // like free_port
  // The site's addr_suffix leads nowhere on this node: names are used as they are.
  bool lacks_suffix = false;
};

// One variable of a plan, with its reason.
struct PlanEntry {
  std::string name;
  std::string value;
  std::string rule;      // one phrase
  std::string source;    // the variable, option or file that the value comes from
  bool kept = false;     // the user's own value: nothing is set
  bool removed = false;  // inherited, wrong for this step, and taken away; no value
};

// What the node's network asks for, found out by the room next door.
struct FabricPart {
  std::vector<PlanEntry> entries;
  std::vector<std::string> warnings;  // for everybody
  std::vector<std::string> remarks;   // for those who ask for an explanation
  std::string summary;                // one phrase; empty if there is nothing to say
};

struct Facts {
  StepFacts step;
  TaskFacts task;
  NodeFacts node;
  FabricPart fabric = {};
};

// The variables that say which GPUs are visible, in the order in which they count.
std::vector<GpuList> read_gpu_lists(const EnvLookup& environment);

// SLURM_STEP_GPUS: the GPUs that SLURM gave, by their numbers on the node ("4,5"), whatever CUDA
// calls them; empty if it did not say.
std::string read_gpu_numbers(const EnvLookup& environment);

// Who started this process, by the variables it sees. mpirun inside a SLURM step is mpirun's.
Launcher detect_launcher(const EnvLookup& environment);

// From SLURM's step variables (SLURM_STEP_*); never from those of the job, which are wrong for any
// step smaller than the job. Both throw LaunchError, naming the variable, if one is missing,
// malformed or contradicts another.
// read_slurm_step needs only what is known before the tasks are forked.
StepFacts read_slurm_step(const EnvLookup& environment);
TaskFacts read_slurm_task(const EnvLookup& environment, const StepFacts& step);

// Under Open MPI's mpirun. `host_name` is this machine's.
Facts read_open_mpi(const EnvLookup& environment, const std::string& host_name);

// A process that nobody launched: a world of one.
Facts single_process(const EnvLookup& environment, const std::string& host_name,
                     std::uint32_t process_id);

}  // namespace ddp::launch
