// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/task_signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/errors.h"

namespace ddp::guard {
namespace {

bool ends_programs(int number) noexcept {
  return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}

}  // namespace

TaskSignals::TaskSignals(pid_t task, bool launcher_reaches_all)
    : task_(task), launcher_(getppid()), launcher_reaches_all_(launcher_reaches_all) {
  sigset_t all;
  sigfillset(&all);
  file_ = FileDescriptor(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!file_) throw RuntimeError("the guard has no file for signals; the task is ended");
}

void TaskSignals::take() {
  signalfd_siginfo info{};
  while (read(file_.get(), &info, sizeof info) == sizeof info) take_one(info);
}

// The guard's own writes cause signals, too.
Sender TaskSignals::sender_of(const signalfd_siginfo& info) const noexcept {
  const auto sender = static_cast<pid_t>(info.ssi_pid);
  if (sender == launcher_) return Sender::launcher;
  return sender == task_ || sender == getpid() ? Sender::task : Sender::other;
}

void TaskSignals::take_one(const signalfd_siginfo& info) {
  const ReceivedSignal signal{static_cast<int>(info.ssi_signo), info.ssi_code > 0, sender_of(info)};
  const bool is_to_end = ends_programs(signal.number);
  if (has_ended_) is_hurried_ = is_hurried_ || is_to_end;
  if (signal.sender == Sender::launcher || (signal.is_of_kernel && is_to_end)) {
    sigaddset(&told_, signal.number);
  }
  if (has_ended_ || !is_to_be_passed_on(signal, launcher_reaches_all_)) return;
  if (info.ssi_code != SI_QUEUE) {
    kill(task_, signal.number);
  } else {
    sigval value{};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): another process's value, which may be a pointer
    value.sival_ptr = reinterpret_cast<void*>(info.ssi_ptr);
    sigqueue(task_, signal.number, value);
  }
}

bool TaskSignals::was_told() const noexcept {
  return sigismember(&told_, SIGTERM) == 1 || sigismember(&told_, SIGINT) == 1;
}

bool TaskSignals::came_from_launcher() const noexcept {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    const bool ends = number != SIGCONT && number != SIGTSTP && number != SIGCHLD &&
                      number != SIGURG && number != SIGWINCH;
    if (ends && sigismember(&told_, number) == 1) return true;
  }
  return false;
}

bool TaskSignals::is_by_launcher(int status) const noexcept {
  const int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
  return number > 0 && sigismember(&told_, number) == 1;
}

}  // namespace ddp::guard
