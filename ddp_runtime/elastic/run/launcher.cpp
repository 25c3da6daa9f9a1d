// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/file_descriptor.h"
#include "base/hostlist.h"
#include "base/socket.h"
#include "base/text.h"
#include "ddp_runtime/comm/ddp_run/run_memory.h"
#include "ddp_runtime/elastic/run/run_environment.h"

namespace ddp::elastic {
namespace {

void add_program(const LaunchPlan& plan, Command& command) {
  command.arguments.insert(command.arguments.end(), {plan.agent, "task", "--"});
  command.arguments.insert(command.arguments.end(), plan.program.begin(), plan.program.end());
}

bool is_in_order(const std::vector<std::string>& nodes, const std::vector<std::string>& order) {
  auto from = order.begin();
  for (const auto& node : nodes) {
    from = std::find(from, order.end(), node);
    if (from == order.end()) return false;
    ++from;
  }
  return true;
}

// As `srun --ddp` does; see "The PMIx fence" in docs/launch.md.
void ask_for_fence_that_waits(Command& command) {
  for (const char* own : {"SLURM_PMIX_FENCE", "SLURM_PMIX_DIRECT_CONN"}) {
    if (std::getenv(own) != nullptr) return;
  }
  command.variables["SLURM_PMIX_FENCE"] = "ring";
}

// Ranks that fail end by themselves; a rank that does not is ended by its agent.
Command srun(const LaunchPlan& plan, const Start& start) {
  const auto ranks = static_cast<int>(start.nodes.size()) * plan.ranks_per_node;
  Command command;
  command.arguments = {"srun",     "--overlap",    "--kill-on-bad-exit=0",
                       "--wait=0", "--export=ALL", fmt::format("--ntasks={}", ranks)};
  if (is_in_order(start.nodes, plan.allocation)) {
    command.arguments.insert(command.arguments.end(),
                             {fmt::format("--nodes={}", start.nodes.size()),
                              fmt::format("--ntasks-per-node={}", plan.ranks_per_node),
                              "--nodelist=" + compress_hostlist(start.nodes)});
  } else {
    command.arguments.emplace_back("--distribution=arbitrary");
    for (const auto& node : start.nodes) {
      for (int i = 0; i < plan.ranks_per_node; ++i) command.hostfile += node + "\n";
    }
  }
  command.arguments.insert(command.arguments.end(), plan.options.begin(), plan.options.end());
  ask_for_fence_that_waits(command);
  add_program(plan, command);
  return command;
}

Command mpirun(const LaunchPlan& plan) {
  Command command;
  command.arguments = {"mpirun", "-n", std::to_string(plan.ranks_per_node)};
  // The supervisor, not mpirun, decides what a failed rank means: others may still be saving.
  // mpirun says nothing of a parameter that it does not know, so a test waits for such a rank.
  command.arguments.insert(command.arguments.end(),
                           {"--mca", "orte_abort_on_non_zero_status", "0"});
  command.arguments.insert(command.arguments.end(), plan.options.begin(), plan.options.end());
  add_program(plan, command);
  return command;
}

// The variables that PyTorch's env:// reads. The kernel chooses a port that no older process uses.
std::vector<Command> direct(const LaunchPlan& plan, const Start& start, std::uint16_t port) {
  std::vector<Command> commands;
  for (int rank = 0; rank < plan.ranks_per_node; ++rank) {
    Command command;
    const auto number = std::to_string(rank);
    const auto ranks = std::to_string(plan.ranks_per_node);
    command.variables = {{kRankVariable, number},
                         {"RANK", number},
                         {"WORLD_SIZE", ranks},
                         {"LOCAL_RANK", number},
                         {"LOCAL_WORLD_SIZE", ranks},
                         {"GROUP_RANK", "0"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(port)},
                         {"TORCHELASTIC_RESTART_COUNT", std::to_string(start.generation - 1)}};
    add_program(plan, command);
    commands.push_back(std::move(command));
  }
  return commands;
}

std::uint16_t free_port() {
  const auto listener = open_listener(0);
  if (!listener.socket) throw RuntimeError("cannot find a free TCP port");
  return listener.port;
}

std::string write_hostfile(const std::string& content) {
  std::string path = (std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp");
  path += "/ddp-run-hosts-XXXXXX";
  const FileDescriptor file(mkstemp(path.data()));
  if (!file || !write_all(file.get(), content)) {
    throw RuntimeError(fmt::format("cannot write the list of hosts {}: {}", path, strerror(errno)));
  }
  return path;
}

// The environment of this process with the variables.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!variables.contains(std::string(text.substr(0, text.find('='))))) {
      environment.emplace_back(text);
    }
  }
  for (const auto& [name, value] : variables)
    environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<Command> commands_for(const LaunchPlan& plan, const Start& start) {
  std::vector<Command> commands;
  switch (plan.kind) {
    case LauncherKind::srun:
      commands = {srun(plan, start)};
      break;
    case LauncherKind::mpirun:
      commands = {mpirun(plan)};
      break;
    case LauncherKind::direct:
      commands = direct(plan, start, free_port());
      break;
  }
  for (auto& command : commands) {
    command.variables[kGenerationVariable] = std::to_string(start.generation);
    if (start.save) command.variables[comm::kRunSaveVariable] = "1";
  }
  return commands;
}

std::vector<std::string> forget_command(const LaunchPlan& plan,
                                        const std::vector<std::string>& nodes) {
  if (plan.kind != LauncherKind::srun || nodes.empty()) return {};
  return {"srun",
          "--overlap",
          "--mpi=none",
          "--kill-on-bad-exit=0",
          fmt::format("--nodes={}", nodes.size()),
          "--ntasks-per-node=1",
          "--nodelist=" + compress_hostlist(nodes),
          plan.agent,
          "forget",
          "--"};
}

LaunchedProcess::LaunchedProcess(const Command& command) : name_(command.arguments[0]) {
  auto variables = command.variables;
  if (!command.hostfile.empty()) {
    hostfile_ = write_hostfile(command.hostfile);
    variables[kHostfile] = hostfile_;
  }
  auto environment = environment_with(variables);
  auto arguments = command.arguments;
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t ignored;  // by ddp-run
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);
  sigaddset(&ignored, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  // A process group in the background is stopped when it reads from a terminal.
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (command.silent) {
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  const int error = posix_spawnp(&pid_, arguments[0].c_str(), &files, &attributes,
                                 pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return;
  pid_ = -1;
  if (!hostfile_.empty()) unlink(hostfile_.c_str());
  throw RuntimeError(fmt::format("cannot start {}: {}", arguments[0], strerror(error)));
}

LaunchedProcess::LaunchedProcess(LaunchedProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      ended_(other.ended_),
      status_(other.status_),
      name_(std::move(other.name_)),
      hostfile_(std::exchange(other.hostfile_, "")) {}

LaunchedProcess::~LaunchedProcess() {
  if (!hostfile_.empty()) unlink(hostfile_.c_str());
  if (pid_ < 0 || ended_) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool LaunchedProcess::has_ended() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) != 0;
  return ended_;
}

std::string LaunchedProcess::ending() const {
  if (!ended_ || status_ == 0) return "";
  if (WIFSIGNALED(status_))
    return fmt::format("{} was killed by signal {}", name_, WTERMSIG(status_));
  return fmt::format("{} ended with exit code {}", name_, WEXITSTATUS(status_));
}

void LaunchedProcess::signal(int number) noexcept {
  if (!ended_) kill(-pid_, number);
}

}  // namespace ddp::elastic
