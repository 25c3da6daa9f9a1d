// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/verdict.h"

#include <sys/wait.h>

#include <array>
#include <csignal>

#include "base/text.h"
#include "spank_plugin/guard/first_error.h"

namespace ddp::guard {
namespace {

struct SignalName {
  int number;
  const char* name;
};

constexpr auto kSignalNames = std::to_array<SignalName>({
    {SIGHUP, "SIGHUP"},
    {SIGINT, "SIGINT"},
    {SIGQUIT, "SIGQUIT"},
    {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"},
    {SIGABRT, "SIGABRT"},
    {SIGBUS, "SIGBUS"},
    {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"},
    {SIGUSR1, "SIGUSR1"},
    {SIGSEGV, "SIGSEGV"},
    {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"},
    {SIGALRM, "SIGALRM"},
    {SIGTERM, "SIGTERM"},
    {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"},
    {SIGSYS, "SIGSYS"},
});

std::string subject(std::string_view who, std::string_view node) {
  return std::string(who) + (node.empty() ? "" : " (" + std::string(node) + ")");
}

std::string status_in_words(int status) {
  if (!WIFSIGNALED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  const std::string name = signal_name(number);
  return "signal " + std::to_string(number) + (name.empty() ? "" : " (" + name + ")") +
         (WCOREDUMP(status) ? ", core dumped" : "");
}

bool is_killed(const Ending& ending) noexcept {
  return WIFSIGNALED(ending.status) && WTERMSIG(ending.status) == SIGKILL;
}

// Without cgroups only the node's count is known.
bool is_killed_for_memory(const Ending& ending) noexcept {
  return is_killed(ending) && ending.cgroup_kills + ending.node_kills > 0;
}

constexpr const char* kLackOfMemory = " for lack of memory";
constexpr const char* kMoreMemory = "; ask for more with --mem, or use fewer loader workers";

std::string killed_for_memory(const Ending& ending) {
  if (ending.cgroup_kills > 0) {
    return std::string(" was killed by the kernel") + kLackOfMemory + kMoreMemory;
  }
  return " was killed by signal 9 (SIGKILL); the kernel killed " +
         counted(ending.node_kills, "process", "es") + " of this node" + kLackOfMemory +
         " meanwhile, so it was perhaps one of them" + kMoreMemory;
}

// What may have been a reason: the processes can be those of another task in the same cgroup.
std::string killed_meanwhile(const Ending& ending) {
  if (ending.cgroup_kills == 0) return "";
  return "; meanwhile the kernel killed " + counted(ending.cgroup_kills, "process", "es") +
         " of its cgroup" + kLackOfMemory + kMoreMemory;
}

// A task prints in the order of time, so its last error is the one that ended it; of workers that
// print to one stream, the first to fail is the cause.
ErrorOrder order_of(const Ending& ending) noexcept {
  return ending.peers == Peers::own_workers ? ErrorOrder::first : ErrorOrder::last;
}

// Whether the error can be the reason for this end. A signal ends a program whatever it printed
// before; of those, abort() is how a library or the C++ runtime reacts to an error.
bool explains(const FirstError& error, const Ending& ending) noexcept {
  if (error.cause == Cause::none || error.cause == Cause::cascade) return false;
  if (ending.was_told && is_answer_to_a_signal(error)) return false;
  if (!WIFSIGNALED(ending.status)) return true;
  switch (WTERMSIG(ending.status)) {
    case SIGABRT:
      return true;
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
      return error.cause == Cause::crash || error.cause == Cause::gpu_fault;
    default:
      return false;
  }
}

// Whether the end may follow from that of another rank, whose guard says more.
bool is_echo(const FirstError& error, const Ending& ending) noexcept {
  if (error.cause != Cause::cascade || ending.peers == Peers::none) return false;
  const int number = WIFSIGNALED(ending.status) ? WTERMSIG(ending.status) : 0;
  return number == 0 || number == SIGABRT || number == SIGTERM || number == SIGPIPE;
}

}  // namespace

std::string signal_name(int number) {
  for (const auto& known : kSignalNames) {
    if (known.number == number) return known.name;
  }
  if (number < SIGRTMIN || number > SIGRTMAX) return "";
  return "SIGRTMIN+" + std::to_string(number - SIGRTMIN);
}

std::string verdict(const Ending& ending, std::string_view who, std::string_view node) {
  if (ending.status == 0 || ending.is_by_launcher) return "";
  if (is_killed_for_memory(ending)) return subject(who, node) + killed_for_memory(ending);
  const FirstError error = find_first_error(ending.errors, order_of(ending));
  const bool has_text = explains(error, ending);
  const bool is_silent = ending.was_told || (is_echo(error, ending) && ending.cgroup_kills == 0);
  if (!has_text && is_silent) return "";
  const bool is_worker = ending.peers == Peers::own_workers && error.rank;
  const std::string start =
      is_worker ? subject("rank " + std::to_string(*error.rank), node) : subject(who, node);
  const std::string how = status_in_words(ending.status);
  if (!has_text) {
    return start + (WIFSIGNALED(ending.status) ? " was killed by " : " ended with ") + how +
           killed_meanwhile(ending);
  }
  return start + " " + std::string(ending.was_told ? kFailedWhenTold : "failed") + ": " +
         error.text + (error.place.empty() ? "" : " (" + error.place + ")") + ", " + how +
         killed_meanwhile(ending);
}

}  // namespace ddp::guard
