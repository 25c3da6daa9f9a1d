// SPDX-License-Identifier: Apache-2.0
// Real processes that answer as Python does; watch.bats has real Python.
#include "spank_plugin/watch/python_stacks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/text_file.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::watch {
namespace {

constexpr int kSignal = 61;
constexpr int kStacks = 50;  // number of the file
constexpr std::string_view kText =
    "Stack (most recent call first):\n  File \"train.py\", line 8 in step\n";

void write_stack(int /*signal*/) {
  if (write(kStacks, kText.data(), kText.size()) < 0) _exit(1);
}

// What differs from a Python process that can be asked.
struct Traits {
  std::string name = "slurm-ddp-stacks-a1-61-50";  // of the file
  bool has_handler = true;
  bool blocks = false;
  bool waits_for_a_signal = false;
};

// A child with such a file, which has a forked child in turn that shares it. Both sleep.
class Program {
 public:
  explicit Program(const Traits& traits = {}) : traits_(traits) {
    std::array<int, 2> ready{};
    std::array<int, 2> never{};
    if (pipe(ready.data()) != 0 || pipe(never.data()) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string path = directory_.path() / traits.name;
      const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      if (dup2(file, kStacks) < 0 || unlink(path.c_str()) != 0) _exit(1);
      close(file);
      if (traits.has_handler) signal(kSignal, write_stack);
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, kSignal);
      if (traits.blocks) sigprocmask(SIG_BLOCK, &one, nullptr);
      if (fork() == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (write(ready[1], "r", 1) != 1) _exit(1);
      char letter = 0;
      if (traits.waits_for_a_signal) pause();
      _exit(read(never[0], &letter, 1) == 1 ? 0 : 1);
    }
    char letter = 0;
    if (read(ready[0], &letter, 1) != 1 || read(ready[0], &letter, 1) != 1) std::abort();
    for (const int end : {ready[0], ready[1], never[0]}) close(end);
    never_ = never[1];
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(never_);
  }
  std::vector<pid_t> processes() const {
    std::vector<pid_t> numbers;
    for (const auto& process : read_processes("/proc", getpid(), pid_)) {
      numbers.push_back(process.pid);
    }
    return numbers;
  }
  // Waits until its main thread sleeps in the call in which it waits.
  void settle() const { settle(pid_, traits_.waits_for_a_signal ? SYS_pause : SYS_read); }
  static void settle(pid_t process, long call) {
    const std::string directory = "/proc/" + std::to_string(process);
    while (!read_kernel_file(directory + "/syscall").starts_with(std::to_string(call) + " ") ||
           read_kernel_file(directory + "/status").find("\nState:\tS") == std::string::npos) {
      usleep(1000);
    }
  }
  bool is_alive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }
  pid_t pid() const noexcept { return pid_; }

 private:
  Traits traits_;
  test::TemporaryDirectory directory_;
  pid_t pid_ = 0;
  int never_ = -1;
};

std::uintmax_t find_size(const std::string& process) {
  return std::filesystem::file_size(process + "/fd/" + std::to_string(kStacks));
}

// The test's time limit ends it otherwise.
void wait_for_place(PythonStacks& stacks, pid_t process) {
  while (stacks.place(process).empty()) {
    usleep(1000);
    stacks.read();
  }
}

TEST(PythonStacks, TellWhereProcessesStandEachTimeTheyAreAsked) {
  const Program one;
  const Program other;
  const std::vector<pid_t> both{one.pid(), other.pid()};
  PythonStacks stacks;
  for (int i = 0; i < 2; ++i) {
    one.settle();
    other.settle();
    stacks.ask(both);
    for (const pid_t process : both) {
      wait_for_place(stacks, process);
      EXPECT_EQ(stacks.place(process), "train.py:8 in step");
    }
  }
  stacks.forget();
  stacks.read();
  EXPECT_EQ(stacks.place(one.pid()), "") << "an answer is forgotten";
  other.settle();
  stacks.ask(std::vector{other.pid()});
  wait_for_place(stacks, other.pid());
  EXPECT_EQ(stacks.place(one.pid()), "") << "it was not asked again";
}

TEST(PythonStacks, SubtractTheirAnswersFromWhatAProcessWrites) {
  const Program program;
  PythonStacks stacks;
  std::vector<Process> processes(1);
  processes[0].pid = program.pid();
  for (std::size_t i = 1; i < 3; ++i) {
    program.settle();
    stacks.ask(std::vector{program.pid()});
    wait_for_place(stacks, program.pid());
    processes[0].io = 1000;
    stacks.subtract_answers(processes);
    EXPECT_EQ(processes[0].io, 1000 - i * kText.size()) << "the answers to both questions";
  }
  processes[0].io = 1;
  stacks.subtract_answers(processes);
  EXPECT_EQ(processes[0].io, 0U);
  processes[0].pid = getpid();
  stacks.subtract_answers(processes);
  EXPECT_EQ(stacks.place(program.pid()), "") << "it has ended";
}

TEST(PythonStacks, AskOneOfTheProcessesThatShareAFile) {
  const Program program;
  const auto processes = program.processes();
  ASSERT_EQ(processes.size(), 2U);
  for (const pid_t process : processes) Program::settle(process, SYS_read);
  PythonStacks stacks;
  stacks.ask(processes);
  wait_for_place(stacks, program.pid());
  for (const pid_t process : processes) Program::settle(process, SYS_read);
  stacks.read();
  EXPECT_EQ(stacks.place(processes[1]), "");
  std::vector<Process> written(1);
  written[0].pid = program.pid();
  written[0].io = 1000;
  stacks.subtract_answers(written);
  EXPECT_EQ(written[0].io, 1000 - kText.size()) << "one answer";
}

TEST(PythonStacks, AreWholeOnceTheyDoNotGrow) {
  const Program program;
  program.settle();
  PythonStacks stacks;
  stacks.ask(std::vector{program.pid()});
  program.settle();
  const std::string directory = "/proc/" + std::to_string(program.pid());
  while (find_size(directory) < kText.size()) usleep(1000);
  stacks.read();
  EXPECT_EQ(stacks.place(program.pid()), "") << "it may be a part";
  stacks.read();
  EXPECT_EQ(stacks.place(program.pid()), "train.py:8 in step");
}

TEST(PythonStacks, DoNotAskAProcessThatIsStopped) {
  const Program program;
  program.settle();
  EXPECT_TRUE(find_stack_file("/proc/" + std::to_string(program.pid())));
  kill(program.pid(), SIGSTOP);
  waitpid(program.pid(), nullptr, WUNTRACED);
  EXPECT_FALSE(find_stack_file("/proc/" + std::to_string(program.pid())));
}

TEST(PythonStacks, SendNothingToAProcessToWhichItDoesHarm) {
  for (const Traits& traits :
       {Traits{.has_handler = false}, Traits{.blocks = true}, Traits{.waits_for_a_signal = true},
        Traits{.name = "stacks-a1-61-50"}, Traits{.name = "slurm-ddp-stacks-a1-61-49"},
        Traits{.name = "slurm-ddp-stacks-a1-60-50"}, Traits{.name = "slurm-ddp-stacks-a1-64-50"},
        Traits{.name = "slurm-ddp-stacks-a1-x-50"}, Traits{.name = "slurm-ddp-stacks-61-50"}}) {
    const Program program(traits);
    program.settle();
    PythonStacks stacks;
    stacks.ask(program.processes());
    const std::string status =
        read_kernel_file("/proc/" + std::to_string(program.pid()) + "/status");
    EXPECT_NE(status.find("\nShdPnd:\t0000000000000000\n"), status.npos) << traits.name;
    EXPECT_NE(status.find("\nSigPnd:\t0000000000000000\n"), status.npos) << traits.name;
    EXPECT_TRUE(program.is_alive()) << traits.name;
    EXPECT_FALSE(find_stack_file("/proc/" + std::to_string(program.pid()))) << traits.name;
  }
}

}  // namespace
}  // namespace ddp::watch
