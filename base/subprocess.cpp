// SPDX-License-Identifier: Apache-2.0
#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace ddp {
namespace {

constexpr int kNotFound = 127;
constexpr int kOutput = STDERR_FILENO + 1;  // descriptor of the output pipe in the child
// Time for the kernel to clean up a killed process.
constexpr std::chrono::milliseconds kKernelTime{200};

struct Pipe {
  FileDescriptor from;
  FileDescriptor to;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw RuntimeError(std::string("cannot create a pipe: ") + std::strerror(errno));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Uses the system call directly, because older C libraries do not have close_range(2).
void close_from(unsigned first) noexcept {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, first, ~0U, 0U) == 0) return;
#endif
  constexpr int kMaxDescriptors = 65'536;
  for (int fd = static_cast<int>(first); fd < kMaxDescriptors; ++fd) close(fd);
}

// Runs in the child, where only async-signal-safe calls are allowed. Closes the parent's
// descriptors: a child that hangs forever would otherwise keep its pipes open, and their readers
// would never see the end of the output.
void settle(pid_t parent, int output, bool output_too, bool errors_too) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before prctl
  setpgid(0, 0);  // own process group, so that kill_all() also kills its children
  dup2(output, kOutput);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(output_too ? kOutput : nothing, STDOUT_FILENO);
  dup2(errors_too ? kOutput : nothing, STDERR_FILENO);
  close_from(kOutput + 1);
  fcntl(kOutput, F_SETFD, FD_CLOEXEC);
}

// The null-terminated form that execvpe(3) expects.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : variables) {
    all.push_back(name);
    all.back().append("=").append(value);
  }
  return all;
}

[[noreturn]] void throw_no_process() {
  throw RuntimeError(std::string("cannot start a process: ") + std::strerror(errno));
}

struct Program {
  char* const* arguments;
  char* const* environment;
  int output;
  bool errors_too;
  pid_t parent;
};

// After vfork, a signal handler that ran in the child would change the memory of this process.
void drop_handlers() noexcept {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
  }
}

[[noreturn, gnu::noinline]] void become(const Program& program, const sigset_t& signals) noexcept {
  settle(program.parent, program.output, true, program.errors_too);
  drop_handlers();
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  execvpe(program.arguments[0], program.arguments, program.environment);
  _exit(kNotFound);
}

// Uses vfork(2), so the child runs in this process's memory until it calls execvpe. The copy that
// fork(2) makes takes longer for a larger process, and copy-on-write could move pages that a
// network card writes to from this process to the copy.
[[gnu::noinline]] pid_t start(const Program& program) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const pid_t pid = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid == 0) become(program, before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid;
}

enum class ReadEnd { end_of_output, deadline, limit };

// The end of a wait: a deadline, or an earlier request to stop.
class WaitEnd {
 public:
  WaitEnd(Deadline deadline, const std::function<bool()>& stop)
      : deadline_(deadline), stop_(stop) {}

  bool reached() const { return Clock::now() >= deadline_ || (stop_ && stop_()); }
  // When to look again whether it is reached.
  Deadline next_look() const {
    constexpr std::chrono::milliseconds kBetweenLooks{100};
    return stop_ ? std::min(deadline_, Clock::now() + kBetweenLooks) : deadline_;
  }

 private:
  Deadline deadline_;
  const std::function<bool()>& stop_;
};

ReadEnd read_to_end(int from, const WaitEnd& wait_end, const OutputLimit& limit, std::string& text,
                    bool& too_long) {
  std::array<char, 4096> chunk{};
  while (true) {
    pollfd entry{from, POLLIN, 0};
    if (wait_end.reached()) return ReadEnd::deadline;
    const int ready = poll(&entry, 1, milliseconds_until(wait_end.next_look()));
    const ssize_t n = ready > 0 ? read(from, chunk.data(), chunk.size()) : -1;
    if (n == 0) return ReadEnd::end_of_output;
    if (n < 0 && ready != 0 && errno != EINTR) return ReadEnd::end_of_output;
    if (n < 0) continue;
    const auto room = std::min(static_cast<std::size_t>(n), limit.bytes - text.size());
    text.append(chunk.data(), room);
    too_long = too_long || room < static_cast<std::size_t>(n);
    if (too_long && limit.kill_beyond) return ReadEnd::limit;
  }
}

}  // namespace

Subprocess::Subprocess(pid_t pid, FileDescriptor output) : pid_(pid), output_(std::move(output)) {}

Subprocess::Subprocess(Subprocess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)) {}

Subprocess::~Subprocess() {
  if (pid_ >= 0) kill_all();
}

Subprocess Subprocess::calling(const std::function<std::string()>& work) {
  Pipe pipe = make_pipe();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw_no_process();
  if (pid > 0) {
    setpgid(pid, pid);  // the child does the same; whichever comes first takes effect
    return {pid, std::move(pipe.from)};
  }
  settle(parent, pipe.to.get(), false, false);
  try {
    write_all(kOutput, work());
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

Subprocess Subprocess::running(const std::vector<std::string>& arguments,
                               const SubprocessOptions& options) {
  std::vector<std::string> copies = arguments;
  const std::vector<char*> argv = pointers_to(copies);
  std::vector<std::string> environment = environment_with(options.variables);
  const std::vector<char*> envp = pointers_to(environment);
  Pipe pipe = make_pipe();
  const pid_t pid = start({argv.data(), envp.data(), pipe.to.get(), options.errors_too, getpid()});
  if (pid < 0) throw_no_process();
  return {pid, std::move(pipe.from)};
}

SubprocessOutput Subprocess::wait(Deadline deadline, const OutputLimit& limit,
                                  const std::function<bool()>& stop) {
  SubprocessOutput result;
  const WaitEnd wait_end(deadline, stop);
  const ReadEnd end = read_to_end(output_.get(), wait_end, limit, result.text, result.too_long);
  std::optional<int> status;
  if (end == ReadEnd::end_of_output) {
    do {
      status = reap_until(std::max(wait_end.next_look(), Clock::now() + kKernelTime));
    } while (!status && kill(pid_, 0) == 0 && !wait_end.reached());
  }
  // Without a status, the process either closed its output and kept running, or exceeded a limit.
  const bool late = end == ReadEnd::end_of_output && !status && wait_end.reached();
  result.timed_out = end == ReadEnd::deadline || late;
  if (status && WIFEXITED(*status)) result.exit_code = WEXITSTATUS(*status);
  if (!status) kill_all();
  return result;
}

std::optional<int> Subprocess::reap_until(Deadline until) noexcept {
  constexpr std::chrono::microseconds kLongestPause{2000};
  std::chrono::microseconds pause{50};
  for (int status = 0;;) {
    const pid_t gone = waitpid(pid_, &status, WNOHANG);
    if (gone == pid_) {
      pid_ = -1;
      return status;
    }
    if ((gone < 0 && errno != EINTR) || Clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

void Subprocess::kill_all() noexcept {
  if (kill(-pid_, SIGKILL) != 0) kill(pid_, SIGKILL);
  static_cast<void>(reap_until(Clock::now() + kKernelTime));
  pid_ = -1;
}

bool can_be_executed(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");
  for (const auto directory : split(path == nullptr ? "/usr/bin" : path, ':')) {
    if (access((std::string(directory) + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::optional<std::string> output_of(const std::vector<std::string>& arguments,
                                     std::chrono::milliseconds limit, std::size_t max_bytes) {
  const Deadline deadline = Clock::now() + limit;
  try {
    SubprocessOutput output = Subprocess::running(arguments, {.variables = {}, .errors_too = false})
                                  .wait(deadline, {max_bytes, true});
    if (output.timed_out || output.too_long || output.exit_code != 0) return std::nullopt;
    return std::move(output.text);
  } catch (const RuntimeError&) {
    return std::nullopt;
  }
}

}  // namespace ddp
