// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <thread>

#include "base/deadline.h"
#include "base/errors.h"
#include "base/text.h"
#include "spank_plugin/guard/error_relay.h"
#include "spank_plugin/guard/leftovers.h"
#include "spank_plugin/guard/memory_events.h"
#include "spank_plugin/guard/node_record.h"
#include "spank_plugin/guard/signal_rule.h"
#include "spank_plugin/guard/verdict.h"

namespace ddp::guard {
namespace {

// How long the processes of a task that ended well may take to end, for example to upload a log.
constexpr auto kPatience = std::chrono::seconds(5);
// After a failure: its helpers, such as `tee`, end by themselves when they have written everything.
constexpr auto kPatienceAfterFailure = std::chrono::seconds(2);

// Older kernels do not have the call, and the files then stay open, as they do in the task.
void close_from_to(int first, int last) noexcept {
  syscall(SYS_close_range, static_cast<unsigned>(first), static_cast<unsigned>(last), 0U);
}

// The guard must not keep open what belongs to the task: a pipe's writer would not see that its
// reader is gone, and a file system could not be unmounted. Keeps standard error and two files.
void let_go_of_the_task(int one, int two) noexcept {
  prctl(PR_SET_NAME, "ddp-guard");
  close(STDIN_FILENO);
  close(STDOUT_FILENO);
  // Numbers 0 to 2 stay taken, so that no later file is mistaken for a standard stream.
  open("/dev/null", O_RDWR);
  open("/dev/null", O_RDWR);
  int next = STDERR_FILENO + 1;
  for (const int kept : {std::min(one, two), std::max(one, two)}) {
    if (kept < next) continue;
    if (kept > next) close_from_to(next, kept - 1);
    next = kept + 1;
  }
  close_from_to(next, std::numeric_limits<int>::max());
  if (chdir("/") != 0) return;  // it then stays where it is, which does no harm
}

std::uint64_t growth(const std::optional<std::uint64_t>& before,
                     const std::optional<std::uint64_t>& after) noexcept {
  return before && after && *after > *before ? *after - *before : 0;
}

bool ends_programs(int number) noexcept {
  return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}

class Guard {
 public:
  Guard(ForkedTask task, const GuardOptions& options)
      : options_(options),
        child_(task.child),
        launcher_(getppid()),
        errors_(std::move(task.errors), STDERR_FILENO),
        kills_before_(read_out_of_memory_kills("/")) {
    sigset_t all;
    sigfillset(&all);
    signals_ = FileDescriptor(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) throw RuntimeError("the guard has no file for signals; the task is ended");
  }

  // Returns the status of the task, once it has ended and its processes with it.
  int watch() {
    for (look_at_children(); !status_;) take_turn(kForever);
    relay_the_rest();
    wait_for_what_is_under_way();
    speak_about_the_end();
    const auto patience = *status_ == 0 ? kPatience : kPatienceAfterFailure;
    const Deadline deadline = Clock::now() + patience;
    while (Leftovers::exist() && !is_hurried_ && Clock::now() < deadline) take_turn(deadline);
    end_leftovers();
    relay_the_rest();
    if (!leftovers_.names().empty()) say(leftover_text());
    if (WIFSIGNALED(*status_)) wait_until_heard();
    return *status_;
  }

 private:
  static constexpr Deadline kForever = Deadline::max();

  // Waits until something happens or the deadline passes, and handles it. Returns whether something
  // happened.
  bool take_turn(Deadline deadline) {
    std::array<pollfd, 3> waits = {{{signals_.get(), POLLIN, 0},
                                    {errors_.source(), POLLIN, 0},
                                    {errors_.target(), POLLOUT, 0}}};
    const int patience = deadline == kForever ? -1 : milliseconds_until(deadline);
    if (poll(waits.data(), waits.size(), patience) <= 0) return false;
    if (waits[1].revents != 0) errors_.receive();
    if (waits[2].revents != 0) errors_.send();
    if (waits[0].revents != 0) take_signals();
    look_at_children();
    return true;
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == sizeof info) take_signal(info);
  }

  // The guard's own writes cause signals, too.
  Sender sender_of(const signalfd_siginfo& info) const {
    const auto sender = static_cast<pid_t>(info.ssi_pid);
    if (sender == launcher_) return Sender::launcher;
    return sender == child_ || sender == getpid() ? Sender::task : Sender::other;
  }

  void take_signal(const signalfd_siginfo& info) {
    const ReceivedSignal signal{static_cast<int>(info.ssi_signo), info.ssi_code > 0,
                                sender_of(info)};
    if (status_) is_hurried_ = is_hurried_ || ends_programs(signal.number);
    const bool is_of_terminal = signal.is_of_kernel && ends_programs(signal.number);
    if (signal.sender == Sender::launcher || is_of_terminal) {
      sigaddset(&told_, signal.number);
    }
    if (status_ || !is_to_be_passed_on(signal, options_.launcher_reaches_all)) return;
    if (info.ssi_code != SI_QUEUE) {
      kill(child_, signal.number);
    } else {
      sigval value{};
      // NOLINTNEXTLINE(performance-no-int-to-ptr): another process's value, which may be a pointer
      value.sival_ptr = reinterpret_cast<void*>(info.ssi_ptr);
      sigqueue(child_, signal.number, value);
    }
  }

  // Reaps the task, and the processes that it has left to this one.
  void look_at_children() noexcept {
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
      if (ended != child_) continue;
      if (WIFSTOPPED(status)) {
        stop_with_task(WSTOPSIG(status));
      } else {
        status_ = status;
      }
    }
    // The number that this process got was not its child's, and it would wait forever.
    if (ended < 0 && !status_) status_ = W_EXITCODE(1, 0);
  }

  // A shell with job control waits for the guard: it must see that the job has stopped. When the
  // shell continues the job, the terminal's group gets SIGCONT, the task too.
  static void stop_with_task(int number) noexcept {
    const bool is_of_terminal = number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
    if (is_of_terminal && has_terminal()) raise(SIGSTOP);
  }

  // What the pipe can hold, and no more: another process may write on and on. In a hurry only what
  // the reader takes at once.
  void relay_the_rest() {
    constexpr std::size_t kMost = std::size_t{1} << 20U;
    const std::size_t end = errors_.received() + kMost;
    while (errors_.received() < end) {
      const bool waits_for_reader = errors_.target() >= 0 && !is_hurried_;
      if (!take_turn(waits_for_reader ? kForever : Clock::now()) && !waits_for_reader) return;
    }
  }

  // A helper such as `tee` may still have the error, and the launcher's signal to this process may
  // come after that to the task.
  void wait_for_what_is_under_way() {
    constexpr auto kOnTheWay = std::chrono::milliseconds(200);
    const Deadline deadline = Clock::now() + kOnTheWay;
    const bool may_be_told = options_.launcher_reaches_all && WIFSIGNALED(*status_);
    while ((Leftovers::exist() || (may_be_told && !is_by_launcher())) && !is_hurried_ &&
           Clock::now() < deadline) {
      take_turn(deadline);
    }
  }

  // Before the leftovers end: the first rank to fail must be the first to speak.
  void speak_about_the_end() {
    const std::string what = verdict(ending(), options_.who, options_.node);
    if (!what.empty() && NodeRecord(options_.node_record).is_first_failure()) say(what);
  }

  void end_leftovers() {
    constexpr auto kTimeToEnd = std::chrono::seconds(2);
    constexpr auto kTimeToDie = std::chrono::seconds(5);
    const Deadline asked = Clock::now() + kTimeToEnd;
    while (Leftovers::exist() && Clock::now() < asked) {
      leftovers_.ask();
      if (leftovers_.names().empty()) return;  // without /proc they cannot be found
      take_turn(std::min(asked, soon()));
    }
    const Deadline forced = Clock::now() + kTimeToDie;
    while (Leftovers::exist() && Clock::now() < forced) {
      leftovers_.force();
      take_turn(soon());
    }
  }

  // Those that the next ones to end leave behind do not announce themselves.
  static Deadline soon() { return Clock::now() + std::chrono::milliseconds(50); }

  // Whether the launcher sent the signal by which the task ended, directly or as a shell says it.
  bool is_by_launcher() const noexcept {
    const int number = WIFSIGNALED(*status_) ? WTERMSIG(*status_) : WEXITSTATUS(*status_) - 128;
    return number > 0 && sigismember(&told_, number) == 1;
  }

  Ending ending() const {
    const OutOfMemoryKills after = read_out_of_memory_kills("/");
    return {*status_,
            sigismember(&told_, SIGTERM) == 1 || sigismember(&told_, SIGINT) == 1,
            is_by_launcher(),
            growth(kills_before_.in_cgroup, after.in_cgroup),
            growth(kills_before_.on_node, after.on_node),
            errors_.tail(),
            options_.peers};
  }

  std::string leftover_text() const {
    constexpr std::size_t kNamed = 4;
    const auto& all = leftovers_.names();
    const std::span<const std::string> named(all.data(), std::min(all.size(), kNamed));
    return options_.who + (options_.node.empty() ? "" : " (" + options_.node + ")") + " left " +
           counted(all.size(), "process", "es") + " behind, now ended: " + join(named, ", ") +
           (all.size() > kNamed ? ", ..." : "");
  }

  // srun closes its output as soon as a task has ended by a signal, and loses what slurmstepd has
  // not sent by then. When slurmstepd has read a pipe is known; when srun has, is not.
  static void wait_until_heard() {
    constexpr auto kOnTheWay = std::chrono::milliseconds(100);
    const Deadline deadline = Clock::now() + std::chrono::seconds(1);
    int unread = 1;
    while (ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0 && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (isatty(STDERR_FILENO) == 0) std::this_thread::sleep_for(kOnTheWay);
  }

  // One write: lines of several tasks must not mix. Nothing if the reader has not even taken what
  // came before.
  void say(const std::string& what) const {
    if (errors_.target() >= 0) return;
    const char* start = errors_.is_at_line_start() ? "" : "\n";
    write_all(STDERR_FILENO, start + ("ddp: watch: " + what + "\n"));
  }

  const GuardOptions& options_;
  pid_t child_;
  pid_t launcher_;
  ErrorRelay errors_;
  OutOfMemoryKills kills_before_;
  FileDescriptor signals_;
  sigset_t told_{};            // signals of the launcher and of the keyboard
  std::optional<int> status_;  // of the task, once it has ended
  bool is_hurried_ = false;    // a signal that ends programs came after that
  Leftovers leftovers_;
};

// The core file is the task's; a second one, of the guard, would replace it.
[[noreturn]] void end_like(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);  // for a program that gets cores through a pipe
    signal(number, SIG_DFL);
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &own, nullptr);
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

void guard_task(ForkedTask task, const GuardOptions& options) {
  let_go_of_the_task(task.errors.get(), options.node_record);
  end_like(Guard(std::move(task), options).watch());
}

}  // namespace ddp::guard
