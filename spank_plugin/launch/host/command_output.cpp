#include "spank_plugin/launch/host/command_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace ddp::launch {
namespace {

using Clock = std::chrono::steady_clock;

// In a process group of its own, so that whatever a script starts ends with it; and ending with
// this process, which may be interrupted.
[[noreturn]] void become(char* const* arguments, int output) noexcept {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);  // the copy stays open in the program
  dup2(nothing, STDERR_FILENO);
  execvp(arguments[0], arguments);
  _exit(127);
}

// Until the end of the output. Nothing if a limit is reached first.
std::optional<std::string> read_all(int fd, Clock::time_point deadline, std::size_t max_bytes) {
  std::string text;
  std::array<char, 4096> block{};
  pollfd ready{fd, POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int events = left <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left));
    if (events < 0 && errno == EINTR) continue;
    if (events <= 0) return std::nullopt;
    const ssize_t count = read(fd, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(count));
    if (text.size() > max_bytes) return std::nullopt;
  }
}

// The status of the child once it has ended; nothing if it has not by the deadline.
std::optional<int> wait_until(pid_t child, Clock::time_point deadline) noexcept {
  constexpr useconds_t kPause = 1000;  // a program that has closed its output ends at once
  for (int status = 0;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if ((ended < 0 && errno != EINTR) || Clock::now() >= deadline) return std::nullopt;
    usleep(kPause);
  }
}

void end(pid_t child) noexcept {
  if (kill(-child, SIGKILL) != 0) kill(child, SIGKILL);  // it had not got to its own group yet
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& arguments,
                                     std::chrono::milliseconds limit, std::size_t max_bytes) {
  std::vector<std::string> words = arguments;
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const auto deadline = Clock::now() + limit;
  const pid_t child = fork();
  if (child == 0) become(pointers.data(), ends[1]);
  close(ends[1]);
  auto text = child > 0 ? read_all(ends[0], deadline, max_bytes) : std::nullopt;
  close(ends[0]);
  const auto status = text ? wait_until(child, deadline) : std::nullopt;
  if (child > 0 && !status) end(child);
  if (!status || !WIFEXITED(*status) || WEXITSTATUS(*status) != 0) return std::nullopt;
  return text;
}

}  // namespace ddp::launch
