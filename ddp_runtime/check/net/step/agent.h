// SPDX-License-Identifier: Apache-2.0
// A task's side of the network check: reports to the leader, executes its commands, and exits with
// the verdict that all tasks share.
#pragma once

#include <chrono>
#include <string>

#include "ddp_runtime/check/net/measure/inject.h"
#include "ddp_runtime/check/net/measure/nccl/nccl_pair.h"
#include "ddp_runtime/check/net/measure/write_bandwidth.h"
#include "ddp_runtime/check/net/step/job_step.h"
#include "ddp_runtime/comm/secret/step_secret.h"

namespace ddp::check {

struct AgentOptions {
  JobStep step;
  std::string program;
  std::string host;  // the machine's own host name
  RdmaTool rdma;
  NcclTool nccl;
  std::vector<Injection> injections;
  std::chrono::milliseconds deadline;  // time limit for reaching the leader
  std::chrono::milliseconds silence;   // time after which a silent leader counts as lost
  bool leaders_own = false;            // runs in the leader's process, so it may use loopback
  std::uint16_t leader_port = 0;       // port of the leader
  comm::StepSecret secret;             // the leader must know it
};

struct AgentOutcome {
  int exit_code = 2;
  std::string complaint;     // why there is no verdict; empty if there is one
  bool left_behind = false;  // a thread still hangs: exit with _Exit
};

AgentOutcome run_agent(const AgentOptions& options);

}  // namespace ddp::check
