#include "ddp_runtime/check/bounded_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "base/errors.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxOutput = std::size_t{1} << 20;
constexpr int kNotFound = 127;
constexpr int kOutput = STDERR_FILENO + 1;  // of the child
// For the kernel to take a killed process apart.
constexpr std::chrono::milliseconds kBurial{200};

struct Pipe {
  FileDescriptor from;
  FileDescriptor to;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw RuntimeError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// In the child, where only calls that a signal handler may make are allowed. A child that hangs for
// good must not keep this process's files open: whoever reads its output would wait for the end.
void settle(pid_t parent, int output, bool both_outputs) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died in between
  setpgid(0, 0);                      // so that what it starts dies with it
  dup2(output, kOutput);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(both_outputs ? kOutput : nothing, STDOUT_FILENO);
  dup2(both_outputs ? kOutput : nothing, STDERR_FILENO);
  close_range(kOutput + 1, ~0U, 0);
  fcntl(kOutput, F_SETFD, FD_CLOEXEC);
}

void write_all(int to, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(to, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    done += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
}

// As execvpe(3) wants them.
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
  for (const auto& [name, value] : variables) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

pid_t fork_or_throw() {
  const pid_t pid = fork();
  if (pid < 0) throw RuntimeError(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (pid > 0) setpgid(pid, pid);  // whoever comes first
  return pid;
}

// False when the deadline passes before the end.
bool read_to_end(int from, Clock::time_point deadline, std::string& text) {
  std::array<char, 4096> chunk{};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{from, POLLIN, 0};
    const int ready = left > 0 ? poll(&entry, 1, static_cast<int>(left)) : 0;
    if (ready == 0) return false;
    const ssize_t n = ready > 0 ? read(from, chunk.data(), chunk.size()) : -1;
    if (n == 0) return true;
    if (n < 0 && errno != EINTR) return true;
    if (n > 0) {
      text.append(chunk.data(), std::min(static_cast<std::size_t>(n), kMaxOutput - text.size()));
    }
  }
}

}  // namespace

BoundedChild::BoundedChild(pid_t pid, FileDescriptor output)
    : pid_(pid), output_(std::move(output)) {}

BoundedChild::BoundedChild(BoundedChild&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)) {}

BoundedChild::~BoundedChild() {
  if (pid_ < 0) return;
  ChildOutput nobody_asks;
  end(nobody_asks, true);
}

BoundedChild BoundedChild::calling(const std::function<std::string()>& work) {
  Pipe pipe = make_pipe();
  const pid_t parent = getpid();
  const pid_t pid = fork_or_throw();
  if (pid > 0) return {pid, std::move(pipe.from)};
  settle(parent, pipe.to.get(), false);
  try {
    write_all(kOutput, work());
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

BoundedChild BoundedChild::running(const std::vector<std::string>& arguments,
                                   const std::map<std::string, std::string>& variables) {
  std::vector<std::string> copies = arguments;
  const std::vector<char*> argv = pointers_to(copies);
  std::vector<std::string> environment = environment_with(variables);
  const std::vector<char*> envp = pointers_to(environment);
  Pipe pipe = make_pipe();
  const pid_t parent = getpid();
  const pid_t pid = fork_or_throw();
  if (pid > 0) return {pid, std::move(pipe.from)};
  settle(parent, pipe.to.get(), true);
  execvpe(argv[0], argv.data(), envp.data());
  _exit(kNotFound);
}

ChildOutput BoundedChild::wait(Clock::time_point deadline) {
  ChildOutput result;
  result.timed_out = !read_to_end(output_.get(), deadline, result.text);
  end(result, result.timed_out);
  return result;
}

void BoundedChild::end(ChildOutput& result, bool kill_it) {
  if (kill_it) kill(-pid_, SIGKILL);
  const auto timeout = Clock::now() + kBurial;
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(pid_, &status, WNOHANG)) == 0 && Clock::now() < timeout) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (ended == 0) kill(-pid_, SIGKILL);  // closed its outputs and went on, or cannot die
  if (ended == pid_ && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  pid_ = -1;
}

}  // namespace ddp::check
