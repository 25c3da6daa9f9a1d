// SPDX-License-Identifier: Apache-2.0
// The guard: the parent of a task under --ddp=watch. It stands where the launcher expects the task,
// passes signals, standard error and the exit status through unchanged, ends the processes that
// outlive the task, and says in one line why a rank failed, or that the ranks stand still.
#pragma once

#include "spank_plugin/guard/fork_task.h"
#include "spank_plugin/guard/guard_options.h"
#include "spank_plugin/guard/node_link.h"

namespace ddp::guard {

// Watches the task until it has ended, and then ends this process in the same way: with the exit
// code, or by the signal. Nothing else may run in this process. Without `make_link`, the ranks of
// other nodes stay unknown.
[[noreturn]] void guard_task(ForkedTask task, const GuardOptions& options, MakeLink make_link = {});

}  // namespace ddp::guard
