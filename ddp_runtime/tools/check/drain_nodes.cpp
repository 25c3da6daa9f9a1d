#include "ddp_runtime/tools/check/drain_nodes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/comm/failure/file_descriptor.h"

namespace ddp::tools {
namespace {

using Clock = std::chrono::steady_clock;
// A controller that does not answer must not hold up a job.
constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kMostOutput = std::size_t{1} << 20;

struct Answer {
  int status = 0;
  std::string output;
};

pid_t spawn(const std::vector<std::string>& arguments, int output) {
  std::vector<std::string> copies = arguments;
  std::vector<char*> argv;
  argv.reserve(copies.size() + 1);
  for (auto& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw RuntimeError(fmt::format("cannot start {}: {}", arguments.front(), std::strerror(error)));
  }
  return pid;
}

// All it writes until it ends; false if it took too long.
bool read_to_end(int from, std::string& output) {
  const auto deadline = Clock::now() + kPatience;
  std::array<char, 4096> chunk{};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{from, POLLIN, 0};
    if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) == 0) return false;
    const ssize_t n = read(from, chunk.data(), chunk.size());
    if (n == 0) return true;
    if (n > 0 && output.size() < kMostOutput)
      output.append(chunk.data(), static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) return true;
  }
}

Answer scontrol(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw RuntimeError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  const comm::FileDescriptor from(ends[0]);
  comm::FileDescriptor to(ends[1]);
  std::vector<std::string> command{"scontrol"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const pid_t pid = spawn(command, to.get());
  to.close();
  Answer answer;
  const bool ended = read_to_end(from.get(), answer.output);
  if (!ended) kill(pid, SIGKILL);
  while (waitpid(pid, &answer.status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) throw RuntimeError("scontrol did not answer; nothing more was drained");
  return answer;
}

// The text behind "Reason=" of `scontrol show node`; empty if there is none.
std::string reason_in(const std::string& description) {
  const std::string key = "Reason=";
  const std::size_t at = description.find(key);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size();
  return description.substr(begin, description.find('\n', begin) - begin);
}

std::string drain_one(const check::Drain& drain) {
  const Answer shown = scontrol({"--oneliner", "show", "node", drain.node});
  if (shown.status != 0) {
    return fmt::format("{}: not drained: {}", drain.node, shown.output);
  }
  const std::string reason = reason_in(shown.output);
  if (!reason.empty() && !reason.starts_with(check::kReasonPrefix)) {
    return fmt::format("{}: left alone, somebody gave it a reason: {}\n", drain.node, reason);
  }
  const Answer done =
      scontrol({"update", "nodename=" + drain.node, "state=drain", "reason=" + drain.reason});
  if (done.status != 0) return fmt::format("{}: not drained: {}", drain.node, done.output);
  return fmt::format("{}: drained, {}\n", drain.node, drain.reason);
}

}  // namespace

std::string drain_nodes(std::span<const check::Drain> drains) {
  std::string text;
  for (const auto& drain : drains) text += drain_one(drain);
  return text;
}

}  // namespace ddp::tools
