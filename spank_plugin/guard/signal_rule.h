// SPDX-License-Identifier: Apache-2.0
// Which signals the guard passes on to the task. The guard stands where the launcher expects the
// task, so it gets the task's signals; but some senders also reach the task itself, which must not
// see a signal twice. A signal to a process group reaches only one of them, except on a terminal
// (see fork_task.h).
#pragma once

#include <string_view>

namespace ddp::guard {

enum class Sender {
  task,
  launcher,  // the parent of the guard
  other,
};

// What signalfd(2) tells of a signal.
struct ReceivedSignal {
  int number = 0;
  bool is_of_kernel = false;
  Sender sender = Sender::other;
};

// `launcher_reaches_all`: the launcher sends each signal to every process of the step, the task
// among them, as slurmstepd does if it tracks processes by their parents.
bool is_to_be_passed_on(const ReceivedSignal& signal, bool launcher_reaches_all) noexcept;

// Whether a launcher with this name (/proc/PID/comm) sends signals to every process, where
// /proc/self/cgroup has this text: slurmstepd, unless it made cgroups for the step.
bool reaches_all(std::string_view launcher, std::string_view cgroups) noexcept;

}  // namespace ddp::guard
