// SPDX-License-Identifier: Apache-2.0
#include "bench/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace ddp::bench {
namespace {

constexpr int kTimeoutMilliseconds = 5000;

// A socket pair rather than a pipe, so that writing to a child that has exited returns an error
// instead of raising SIGPIPE. Other children inherit neither end.
std::array<FileDescriptor, 2> channel() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw RuntimeError(fmt::format("cannot create a socket pair: {}", std::strerror(errno)));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

pid_t spawn(const std::vector<std::string>& arguments, int input, int output) {
  std::vector<std::string> copies = arguments;
  std::vector<char*> argv;
  argv.reserve(copies.size() + 1);
  for (auto& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw RuntimeError(fmt::format("cannot start {}: {}", arguments.front(), std::strerror(error)));
  }
  return pid;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments)
    : program_(arguments.front()) {
  auto input = channel();
  auto output = channel();
  pid_ = spawn(arguments, input[1].get(), output[1].get());
  to_child_ = std::move(input[0]);
  from_child_ = std::move(output[0]);
}

ChildProcess::~ChildProcess() {
  to_child_.close();
  // The child closes its output when it exits.
  pollfd end{from_child_.get(), POLLIN, 0};
  std::array<char, 256> rest{};
  while (poll(&end, 1, kTimeoutMilliseconds) > 0 &&
         read(from_child_.get(), rest.data(), rest.size()) > 0) {
  }
  if ((end.revents & POLLHUP) == 0) kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::throw_gone() const {
  throw RuntimeError(fmt::format("{} exited unexpectedly; see its output above", program_));
}

void ChildProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = send(to_child_.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_gone();
    done += static_cast<std::size_t>(n);
  }
}

std::string ChildProcess::read_line() {
  std::array<char, 4096> block{};
  while (true) {
    const auto end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const ssize_t n = read(from_child_.get(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      to_child_.close();  // the child may exit shortly after it closes its output
      throw_gone();
    }
    unread_.append(block.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace ddp::bench
