// SPDX-License-Identifier: Apache-2.0
// A task's knowledge of its job step before it opens any connection: its own rank, the other tasks,
// and the leader's host and port.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/environment.h"

namespace ddp::check {

struct ExpectedNode {
  std::string name;
  int tasks = 1;
};

struct JobStep {
  int rank = 0;
  int size = 1;                     // number of tasks
  std::string node;                 // the node of this task
  std::vector<ExpectedNode> nodes;  // empty if the launcher does not list them
  std::string leader_host;          // the host on which rank 0 listens
  std::uint16_t leader_port = 0;    // 0: any port, for a single task
  std::string identity;             // the same for all tasks of this step, unique to the step
  bool pretended = false;           // the nodes are not real machines
  int job_nodes = 0;                // number of nodes of the SLURM job; 0 without a job
  std::string leaf;                 // the switch of this node, if SLURM reports it
};

struct StepOptions {
  std::optional<std::uint16_t> port = {};  // replaces MASTER_PORT or the port of the step
  // For tests: a list of node names such as "n[1-4]". The ranks are assigned to them in equal
  // blocks, so that ranks on one machine act as several nodes.
  std::string pretend_nodes = {};
};

// The lowest switch above the node in SLURM_TOPOLOGY_ADDR ("s0.s3.node7" with the pattern
// "switch.switch.node"); empty if SLURM reports no switches.
std::string leaf_of(const Environment& environment);

// Reads the variables of a SLURM step or of mpirun; without either, the step is a single task. Rank
// 0 has the host and port of the launch plan, so the check uses the same address as the training:
// MASTER_ADDR and MASTER_PORT if they are set, else the values that the plugin would set. Throws
// UsageError if the variables are inconsistent, or if none of them contains the host of rank 0.
JobStep step_from(const Environment& environment, const std::string& host_name,
                  const StepOptions& options);

}  // namespace ddp::check
