// SPDX-License-Identifier: Apache-2.0
// The signals that a guard gets: it passes on to the task those that the task did not get itself.
#pragma once

#include <sys/signalfd.h>
#include <sys/types.h>

#include <csignal>

#include "base/file_descriptor.h"
#include "spank_plugin/guard/signal_rule.h"

namespace ddp::guard {

class TaskSignals {
 public:
  // All signals of this process must be blocked. Throws RuntimeError if the kernel has no file for
  // them.
  TaskSignals(pid_t task, bool launcher_reaches_all);

  // What to wait for with poll(2).
  int source() const noexcept { return file_.get(); }
  // Handles all that have come.
  void take();
  // From now on the task's number may belong to another process.
  void end_of_task() noexcept { has_ended_ = true; }

  // Whether the launcher or a keyboard told the task to end.
  bool was_told() const noexcept;
  // Whether the launcher sent the signal by which the task ended, directly or as a shell says it.
  bool is_by_launcher(int status) const noexcept;
  // Or sent it another signal that ends programs which do not handle it, such as a warning.
  bool came_from_launcher() const noexcept;
  // Whether a signal that ends programs came after the end of the task.
  bool is_hurried() const noexcept { return is_hurried_; }

 private:
  void take_one(const signalfd_siginfo& info);
  Sender sender_of(const signalfd_siginfo& info) const noexcept;

  pid_t task_;
  pid_t launcher_;
  bool launcher_reaches_all_;
  FileDescriptor file_;
  sigset_t told_{};  // signals of the launcher and of the keyboard
  bool has_ended_ = false;
  bool is_hurried_ = false;
};

}  // namespace ddp::guard
