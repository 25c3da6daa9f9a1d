// SPDX-License-Identifier: Apache-2.0
// What a task knows about its job step before anything is connected: its own rank, which other
// tasks to expect, and where they meet.
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
  int size = 1;                     // number of tasks
  std::string node;                 // where this task runs
  std::vector<ExpectedNode> nodes;  // empty if the launcher does not list them
  std::string leader_host;          // where rank 0 listens
  std::uint16_t leader_port = 0;    // 0: single task, any port will do
  std::string identity;             // shared by all tasks of the step and by no other
  bool pretended = false;           // the nodes are names only
  int job_nodes = 0;                // number of nodes of the whole SLURM job; 0 outside of one
  std::string leaf;                 // the switch of this node, if SLURM reports it
};

struct StepOptions {
  std::optional<std::uint16_t> port = {};  // instead of MASTER_PORT or the step's own
  // A testing aid: a list of node names such as "n[1-4]" to which the ranks are assigned in equal
  // blocks, so that ranks on one machine act as several nodes.
  std::string pretend_nodes = {};
};

// The switch above the node in SLURM_TOPOLOGY_ADDR ("s0.s3.node7" with the pattern
// "switch.switch.node"); empty if SLURM does not know any switches.
std::string leaf_of(const Environment& environment);

// Reads the variables of a SLURM step or of mpirun; a single task without either. Rank 0's host and
// port are those of the launch plan, so the check meets where the training will: at MASTER_ADDR and
// MASTER_PORT if they are set, else at the values the plugin would set. Throws UsageError if the
// variables are inconsistent, or if none says where rank 0 runs.
JobStep step_from(const Environment& environment, const std::string& host_name,
                  const StepOptions& options);

}  // namespace ddp::check
