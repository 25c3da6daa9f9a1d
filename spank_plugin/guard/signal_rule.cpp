// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/signal_rule.h"

#include <csignal>

namespace ddp::guard {

namespace {

// Hangup reaches the leader of a session, and timers survive exec(): both may be the guard. What
// the keyboard sends reaches the task too, and the rest is about the guard's own writes.
bool is_passed_on_from_kernel(int number) noexcept {
  return number == SIGHUP || number == SIGALRM || number == SIGVTALRM || number == SIGPROF;
}

}  // namespace

bool is_to_be_passed_on(const ReceivedSignal& signal, bool launcher_reaches_all) noexcept {
  if (signal.number == SIGCHLD || signal.sender == Sender::task) return false;
  if (signal.is_of_kernel) return is_passed_on_from_kernel(signal.number);
  return signal.sender != Sender::launcher || !launcher_reaches_all;
}

bool reaches_all(std::string_view launcher, std::string_view cgroups) noexcept {
  return launcher == "slurmstepd" && cgroups.find("/step_") == cgroups.npos;
}

}  // namespace ddp::guard
