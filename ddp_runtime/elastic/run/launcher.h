// SPDX-License-Identifier: Apache-2.0
// The command that starts one agent per rank, and the process that runs it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

enum class LauncherKind : std::uint8_t {
  srun,    // a step of the SLURM job
  mpirun,  // on this host
  direct,  // on this host, without MPI
};

struct LaunchPlan {
  LauncherKind kind = LauncherKind::direct;
  int ranks_per_node = 1;
  std::vector<std::string> options = {};     // of srun or mpirun
  std::vector<std::string> allocation = {};  // all nodes, in SLURM's order
  std::string agent;                         // the path of ddp-run
  std::vector<std::string> program;
};

// One command to be run.
struct Command {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> variables;
  std::string hostfile;  // its content, if there is to be one; its path replaces kHostfile
  bool silent = false;   // what it prints is not shown
};
inline constexpr const char* kHostfile = "SLURM_HOSTFILE";

// With srun and mpirun, one command starts all ranks; otherwise there is one for each.
//
// SLURM numbers ranks in the order of its own list of nodes. If a spare has taken the place of
// another node, only a hostfile gives it the ranks of that one.
std::vector<Command> commands_for(const LaunchPlan& plan, const Start& start);

// The command that removes what the program has kept in the memory of these nodes; empty if this
// process can, or if there are no nodes.
std::vector<std::string> forget_command(const LaunchPlan& plan,
                                        const std::vector<std::string>& nodes);

// A process in a group of its own, which ends with this object.
class LaunchedProcess {
 public:
  // Throws RuntimeError if no process can be started.
  explicit LaunchedProcess(const Command& command);
  LaunchedProcess(LaunchedProcess&& other) noexcept;
  LaunchedProcess& operator=(LaunchedProcess&&) = delete;
  LaunchedProcess(const LaunchedProcess&) = delete;
  LaunchedProcess& operator=(const LaunchedProcess&) = delete;
  ~LaunchedProcess();

  bool has_ended();
  // How it has ended, for people; empty if well.
  std::string ending() const;
  void signal(int number) noexcept;

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  std::string name_;
  std::string hostfile_;
};

}  // namespace ddp::elastic
