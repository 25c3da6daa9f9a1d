// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/fork_task.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "spank_plugin/guard/above_standard.h"

namespace ddp::guard {
namespace {

[[noreturn]] void fail(const char* what) {
  throw RuntimeError(std::string("cannot ") + what + ": " + std::strerror(errno));
}

struct Pipe {
  FileDescriptor out;
  FileDescriptor in;
  bool has_output = false;  // standard output, too
};

// Two names of one file or pipe, as after `2>&1`.
bool is_one_stream(int first, int second) noexcept {
  struct stat one = {};
  struct stat two = {};
  if (fstat(first, &one) != 0 || fstat(second, &two) != 0) return false;
  return one.st_dev == two.st_dev && one.st_ino == two.st_ino && !S_ISCHR(one.st_mode);
}

// A terminal stays the program's own: a program asks whether its standard error is one. So does a
// closed descriptor, which would otherwise become open.
Pipe pipe_of_errors() {
  if (fcntl(STDERR_FILENO, F_GETFD) < 0 || isatty(STDERR_FILENO) != 0) return {};
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("make a pipe");
  Pipe pipe{above_standard(FileDescriptor(ends[0])), above_standard(FileDescriptor(ends[1])),
            is_one_stream(STDOUT_FILENO, STDERR_FILENO)};
  if (!pipe.out || !pipe.in) fail("make a pipe");
  // As much as is read at once; without the privilege for it the pipe stays smaller, and slower.
  constexpr int kBytes = 1 << 18;
  fcntl(pipe.out.get(), F_SETPIPE_SZ, kBytes);
  return pipe;
}

// What fork_task() changes in the process and its child gets back.
class SignalState {
 public:
  // A launcher that ignores SIGCHLD would have the kernel discard the exit status of the child.
  SignalState() noexcept {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask_);
    struct sigaction standard = {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &standard, &child_action_);
  }

  void restore() const noexcept {
    sigaction(SIGCHLD, &child_action_, nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  sigset_t mask_{};
  struct sigaction child_action_ = {};
};

// In the child: it must not outlive its parent, which may already be gone.
void become_task(pid_t parent, Pipe pipe, const SignalState& signals) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  if (!has_terminal()) setpgid(0, 0);
  if (pipe.in) dup2(pipe.in.get(), STDERR_FILENO);
  if (pipe.has_output) dup2(pipe.in.get(), STDOUT_FILENO);
  signals.restore();
}

}  // namespace

std::optional<ForkedTask> fork_task() {
  Pipe pipe = pipe_of_errors();
  const SignalState signals;
  // Before the fork: a process of the task may outlive its own parent at once.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    const int error = errno;
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    signals.restore();
    errno = error;
    fail("fork");
  }
  if (child == 0) {
    become_task(parent, std::move(pipe), signals);
    return std::nullopt;
  }
  if (!has_terminal()) setpgid(child, child);  // here too: neither process waits for the other
  return ForkedTask{child, std::move(pipe.out)};
}

bool has_terminal() noexcept {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (tcgetpgrp(stream) >= 0) return true;  // a container may lack /dev/tty
  }
  return static_cast<bool>(FileDescriptor(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)));
}

}  // namespace ddp::guard
