// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <limits>
#include <optional>

#include "base/deadline.h"
#include "spank_plugin/guard/error_relay.h"
#include "spank_plugin/guard/leftovers.h"
#include "spank_plugin/guard/memory_events.h"
#include "spank_plugin/guard/node_record.h"
#include "spank_plugin/guard/rank_watch.h"
#include "spank_plugin/guard/task_ending.h"
#include "spank_plugin/guard/task_signals.h"
#include "spank_plugin/guard/verdict.h"

namespace ddp::guard {
namespace {

// How long the processes of a task that ended well may take to end, for example to upload a log.
constexpr auto kPatience = std::chrono::seconds(5);
// After a failure: its helpers, such as `tee`, end by themselves when they have written everything.
constexpr auto kPatienceAfterFailure = std::chrono::seconds(2);

// How often a guard looks whether the step ends, which costs it microseconds.
constexpr auto kEndInterval = std::chrono::milliseconds(200);
// A rank whose only error is the echo of another one's: so long that one may say what happened. It
// may have closed its connections first, and then upload its logs.
constexpr auto kTimeForTheCause = std::chrono::seconds(10);
constexpr const char* kNoCause =
    "a rank lost its connection to another one 10 s ago, and none says why";

// For processes that outlive a task, after SIGTERM.
constexpr auto kTimeForLeftovers = std::chrono::seconds(2);

// Older kernels do not have the call, and the files then stay open, as they do in the task.
void close_from_to(int first, int last) noexcept {
  syscall(SYS_close_range, static_cast<unsigned>(first), static_cast<unsigned>(last), 0U);
}

// The guard must not keep open what belongs to the task: a pipe's writer would not see that its
// reader is gone, and a file system could not be unmounted. Keeps standard error and two files.
void let_go_of_the_task(int one, int two) noexcept {
  prctl(PR_SET_NAME, kGuardName);
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

int exit_code(int status) noexcept {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class Guard {
 public:
  Guard(ForkedTask task, const GuardOptions& options, MakeLink make_link)
      : options_(options),
        child_(task.child),
        signals_(task.child, options.launcher_reaches_all),
        errors_(std::move(task.errors), STDERR_FILENO),
        kills_before_(read_out_of_memory_kills("/")),
        record_(options.node_record),
        rank_watch_(task.child, options, record_, std::move(make_link)) {
    // An editor or a shell on a terminal waits for a person; a line would only disturb.
    if (isatty(STDERR_FILENO) != 0) rank_watch_.give_up();
  }

  // Returns the status of the task, once it has ended and its processes with it.
  int watch() {
    for (look_at_children(); !status_;) run_task();
    rank_watch_.end(*status_);
    if (*status_ == 0) rank_watch_.leave();
    relay_the_rest();
    wait_for_what_is_under_way();
    speak_about_the_end();
    if (*status_ != 0) rank_watch_.leave();
    const Deadline deadline = Clock::now() + patience();
    while (Leftovers::exist() && !signals_.is_hurried() && Clock::now() < deadline) {
      take_turn(deadline);
    }
    Leftovers leftovers;
    const bool may_save = ending_.has_told();
    leftovers.end(may_save ? TaskEnding::kGrace : kTimeForLeftovers,
                  [this, may_save](Deadline until) {
                    take_turn(until);
                    return may_save && rank_watch_.rest_stands_still();
                  });
    relay_the_rest();
    if (!leftovers.names().empty() && !ending_.has_told())
      say(options_.subject() + " left " + leftovers.text());
    if (WIFSIGNALED(*status_)) errors_.wait_until_heard();
    return status_of_step().value_or(ending_.status_for(*status_));
  }

 private:
  static constexpr Deadline kForever = Deadline::max();

  void run_task() {
    take_turn(std::min(rank_watch_.next_look(), next_end_check()));
    if (status_) return;
    end_task_with_step();
    if (Clock::now() >= rank_watch_.next_look()) look();
    if (unsaid_.empty() || !errors_.takes_a_line()) return;
    say(unsaid_);
    unsaid_.clear();
  }

  void look() {
    try {
      const std::string what = rank_watch_.look();
      // A rank that wakes up to end is no news.
      if (!what.empty() && !signals_.was_told() && !ending_.has_told()) unsaid_ = what;
    } catch (const std::exception&) {  // out of memory: the task must not suffer
      rank_watch_.give_up();
    }
  }

  // Where nothing watches the rank, nothing ends it.
  Deadline next_end_check() const {
    const bool is_watched = rank_watch_.next_look() != kForever;
    const bool may_end = options_.ends_on_failure || options_.ends_on_stall;
    return is_watched && may_end ? Clock::now() + kEndInterval : kForever;
  }

  void end_task_with_step() {
    // A rank that the launcher has told to end has the time that the launcher gives it.
    if (next_end_check() == kForever || signals_.was_told()) return;
    const auto end = rank_watch_.step_end();
    const int number = ending_.next_signal(end, Clock::now(), rank_watch_.stands_still());
    if (number == 0) return;
    kill(child_, number);
    kill(child_, SIGCONT);  // a stopped process must hear it
    if (number != SIGTERM) return;
    rank_watch_.look_closely();
    if (!end->is_explained && rank_watch_.speaks_for_step())
      unsaid_ = kNoCause + rank_watch_.what_ends();
  }

  // Waits until something happens or the deadline passes, and handles it. Returns whether something
  // happened.
  bool take_turn(Deadline deadline) {
    std::array<pollfd, 3> waits = {{{signals_.source(), POLLIN, 0},
                                    {errors_.source(), POLLIN, 0},
                                    {errors_.target(), POLLOUT, 0}}};
    const int patience = deadline == kForever ? -1 : milliseconds_until(deadline);
    if (poll(waits.data(), waits.size(), patience) <= 0) return false;
    if (waits[1].revents != 0) errors_.receive();
    if (waits[2].revents != 0) errors_.send();
    if (waits[0].revents != 0) signals_.take();
    look_at_children();
    return true;
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
    if (status_) signals_.end_of_task();
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
      const bool waits_for_reader = errors_.target() >= 0 && !signals_.is_hurried();
      if (!take_turn(waits_for_reader ? kForever : Clock::now()) && !waits_for_reader) return;
    }
  }

  // A helper such as `tee` may still have the error, and the launcher's signal to this process may
  // come after that to the task.
  void wait_for_what_is_under_way() {
    constexpr auto kOnTheWay = std::chrono::milliseconds(200);
    const Deadline deadline = Clock::now() + kOnTheWay;
    const bool may_be_told = options_.launcher_reaches_all && *status_ != 0;
    while ((Leftovers::exist() || (may_be_told && !signals_.came_from_launcher())) &&
           !signals_.is_hurried() && Clock::now() < deadline) {
      take_turn(deadline);
    }
  }

  // Before the leftovers end: the first rank to fail must be the first to speak.
  void speak_about_the_end() {
    if (ending_.has_told()) return;
    const Ending end = ending();
    const std::string what = verdict(end, options_.who(), options_.node);
    const bool is_end = ends_step(end);
    is_echo_ = is_end && what.empty();
    if (!what.empty() && record_.is_first_failure())
      say(is_end ? what + rank_watch_.what_ends() : what);
    if (!is_end) return;
    const auto wait = what.empty() ? kTimeForTheCause : Clock::duration::zero();
    rank_watch_.end_step({Clock::now() + wait, exit_code(*status_), !what.empty()});
  }

  bool ends_step(const Ending& end) const {
    return options_.ends_on_failure && next_end_check() != kForever &&
           rank_watch_.ending_ranks() > 1 && end.status != 0 && !signals_.came_from_launcher();
  }

  // That of the rank that failed, if this one ended only because of it, and before it was told to.
  std::optional<int> status_of_step() {
    const auto end = is_echo_ ? rank_watch_.step_end() : std::nullopt;
    if (!end || !end->is_explained || end->code == 0) return std::nullopt;
    return W_EXITCODE(end->code, 0);
  }

  Clock::duration patience() const noexcept {
    if (ending_.has_told()) return Clock::duration::zero();
    return *status_ == 0 ? kPatience : kPatienceAfterFailure;
  }

  Ending ending() const {
    const OutOfMemoryKills after = read_out_of_memory_kills("/");
    return {*status_,
            signals_.was_told(),
            signals_.is_by_launcher(*status_),
            growth(kills_before_.in_cgroup, after.in_cgroup),
            growth(kills_before_.on_node, after.on_node),
            errors_.tail(),
            options_.peers()};
  }

  void say(const std::string& what) { errors_.add_line("ddp: watch: " + what); }

  const GuardOptions& options_;
  pid_t child_;
  TaskSignals signals_;
  ErrorRelay errors_;
  OutOfMemoryKills kills_before_;
  NodeRecord record_;
  RankWatch rank_watch_;
  TaskEnding ending_;
  bool is_echo_ = false;       // the task's end is only that of another rank's failure
  std::string unsaid_;         // about progress, while the reader of errors_ is slow
  std::optional<int> status_;  // of the task, once it has ended
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
  _exit(exit_code(status));
}

}  // namespace

void guard_task(ForkedTask task, const GuardOptions& options, MakeLink make_link) {
  let_go_of_the_task(task.errors.get(), options.node_record);
  // The guard must be gone before, because it sends its last words to other nodes then.
  const int status = Guard(std::move(task), options, std::move(make_link)).watch();
  end_like(status);
}

}  // namespace ddp::guard
