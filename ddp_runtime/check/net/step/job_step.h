// What a task knows of its job step before anything is connected: who it is, who else should come,
// and where they meet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/environment.h"

namespace ddp::check {

struct ExpectedNode {
  std::string name;
  int tasks = 1;
};

struct JobStep {
  int rank = 0;
  int size = 1;                     // tasks
  std::string node;                 // where this task runs
  std::vector<ExpectedNode> nodes;  // empty if whoever started the step does not tell
  std::string leader_host;          // where rank 0 listens
  std::uint16_t leader_port = 0;    // 0: alone, any port will do
  std::string identity;             // the same for all tasks of the step and no other
  bool pretended = false;           // the nodes are names only
  int job_nodes = 0;                // of the whole SLURM job; 0 outside of one
  std::string leaf;                 // the switch that this node hangs on, if SLURM tells
};

struct StepOptions {
  std::optional<std::uint16_t> port = {};  // instead of MASTER_PORT or the step's own
  // A testing aid: a list of nodes such as "n[1-4]" that the ranks count as, in equal blocks, so
  // that ranks on one machine are several nodes.
  std::string pretend_nodes = {};
};

// The switch above the node in SLURM_TOPOLOGY_ADDR ("s0.s3.node7" with the pattern
// "switch.switch.node"); empty where SLURM knows of no switches.
std::string leaf_of(const Environment& environment);

// From the variables of a SLURM step or of mpirun; alone without either. Rank 0's host and port are
// those of the launch plan, so the check meets where the training will: MASTER_ADDR and MASTER_PORT
// if they are set, else what the plugin would set them to. Throws UsageError if the variables make
// no sense, or if nothing says where rank 0 is.
JobStep step_from(const Environment& environment, const std::string& host_name,
                  const StepOptions& options);

}  // namespace ddp::check
