// SPDX-License-Identifier: Apache-2.0
// Real processes that answer as Python does; watch.bats has real Python.
#include "spank_plugin/watch/python_stacks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>

#include "tests/unit/temporary_directory.h"

namespace ddp::watch {
namespace {

constexpr int kSignal = 37;
constexpr int kStacks = 50;  // number of the file

void write_stacks(int /*signal*/) {
  constexpr std::string_view kText =
      "Current thread 0x1 (most recent call first):\n  File \"train.py\", line 8 in step\n";
  if (write(kStacks, kText.data(), kText.size()) < 0) _exit(1);
}

// A child with a file for stacks of this name, and with a handler for the signal if wanted; it has
// a forked child in turn, which shares both.
class Program {
 public:
  Program(const std::string& name, bool has_handler) {
    std::array<int, 2> ready{};
    if (pipe(ready.data()) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string path = directory_.path() / name;
      const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      if (dup2(file, kStacks) < 0 || unlink(path.c_str()) != 0) _exit(1);
      close(file);
      if (has_handler) signal(kSignal, write_stacks);
      if (fork() == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (write(ready[1], "r", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char letter = 0;
    if (read(ready[0], &letter, 1) != 1 || read(ready[0], &letter, 1) != 1) std::abort();
    close(ready[0]);
    close(ready[1]);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::vector<Process> processes() const { return read_processes("/proc", getpid(), pid_); }
  bool is_alive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }
  pid_t pid() const noexcept { return pid_; }

 private:
  test::TemporaryDirectory directory_;
  pid_t pid_ = 0;
};

// Reads until there is an answer, or as often as the class allows.
void wait_for_answers(PythonStacks& stacks) {
  while (stacks.is_waiting()) {
    usleep(100'000);
    stacks.read();
  }
}

TEST(PythonStacks, TellWhereAProcessStandsEachTimeItIsAsked) {
  const Program program("slurm-ddp-stacks-37-a1", true);
  const auto processes = program.processes();
  ASSERT_EQ(processes.size(), 2U);
  PythonStacks stacks;
  EXPECT_FALSE(stacks.is_waiting());
  for (int i = 0; i < 2; ++i) {
    stacks.ask(processes, 9);
    EXPECT_TRUE(stacks.is_waiting());
    ASSERT_EQ(stacks.answers().size(), 1U) << "its child has the same file";
    EXPECT_EQ(stacks.answers().front().process, program.pid());
    wait_for_answers(stacks);
    EXPECT_EQ(stacks.answers().front().place, "train.py:8 in step");
  }
  stacks.forget();
  EXPECT_TRUE(stacks.answers().empty());
}

TEST(PythonStacks, AskSeveralProcessesButNoMoreThanWanted) {
  const Program one("slurm-ddp-stacks-37-a1", true);
  const Program other("slurm-ddp-stacks-37-a2", true);
  auto processes = one.processes();
  for (const auto& process : other.processes()) processes.push_back(process);
  PythonStacks stacks;
  for (const std::size_t most : {0U, 1U, 2U, 3U}) {
    stacks.ask(processes, most);
    wait_for_answers(stacks);
    ASSERT_EQ(stacks.answers().size(), std::min<std::size_t>(most, 2));
    for (const auto& answer : stacks.answers()) EXPECT_EQ(answer.place, "train.py:8 in step");
  }
  EXPECT_EQ(stacks.answers().back().process, other.pid());
}

TEST(PythonStacks, GiveUpOnAProcessThatIsStopped) {
  const Program program("slurm-ddp-stacks-37-a1", true);
  kill(program.pid(), SIGSTOP);
  PythonStacks stacks;
  stacks.ask(program.processes(), 1);
  wait_for_answers(stacks);
  ASSERT_EQ(stacks.answers().size(), 1U);
  EXPECT_EQ(stacks.answers().front().place, "");
}

TEST(PythonStacks, SendNothingToAProcessThatWouldDieOfIt) {
  const Program without_handler("slurm-ddp-stacks-37-a1", false);
  const Program other_file("stacks-37-a1", true);
  const Program no_signal("slurm-ddp-stacks-x-a1", true);
  const Program other_signal("slurm-ddp-stacks-38-a1", true);
  const Program too_large("slurm-ddp-stacks-64-a1", true);
  for (const Program* program :
       {&without_handler, &other_file, &no_signal, &other_signal, &too_large}) {
    PythonStacks stacks;
    for (int i = 0; i < 100; ++i) stacks.ask(program->processes(), 9);
    EXPECT_TRUE(stacks.answers().empty());
    EXPECT_TRUE(program->is_alive());
  }
}

}  // namespace
}  // namespace ddp::watch
