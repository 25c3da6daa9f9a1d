// SPDX-License-Identifier: Apache-2.0
// The guard: the parent of a task under --ddp=watch. It stands where the launcher expects the task,
// passes signals, standard error and the exit status through unchanged, ends the processes that
// outlive the task, and says in one line why a rank failed.
#pragma once

#include <string>

#include "spank_plugin/guard/fork_task.h"
#include "spank_plugin/guard/verdict.h"

namespace ddp::guard {

struct GuardOptions {
  std::string who;                    // "rank 5"
  std::string node;                   // may be empty
  int node_record = -1;               // file of the NodeRecord; -1 for none
  bool launcher_reaches_all = false;  // see is_to_be_passed_on()
  Peers peers = Peers::other_ranks;
};

// Watches the task until it has ended, and then ends this process in the same way: with the exit
// code, or by the signal. Nothing else may run in this process.
[[noreturn]] void guard_task(ForkedTask task, const GuardOptions& options);

}  // namespace ddp::guard
