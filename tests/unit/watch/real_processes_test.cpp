// SPDX-License-Identifier: Apache-2.0
// Real child processes as the meter sees them. The times of the readings are made up.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "spank_plugin/watch/progress.h"

namespace ddp::watch {
namespace {

[[noreturn]] void sleep_forever() {
  for (;;) pause();
}

// A child that sleeps and has a child that computes.
class Task {
 public:
  Task() : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const pid_t task = getpid();
    if (fork() != 0) sleep_forever();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == task) {
    }
    _exit(0);
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const noexcept { return pid_; }
  std::vector<Process> read() const { return read_processes("/proc", getpid(), pid_); }
  // Reads again until the processes are as wanted; the test's time limit ends it otherwise.
  template <typename Condition>
  std::vector<Process> read_until(Condition condition) const {
    for (;;) {
      auto processes = read();
      if (condition(processes)) return processes;
      usleep(1000);
    }
  }

 private:
  pid_t pid_;
};

TEST(RealProcesses, AreBusyQuietAndStopped) {
  const Task task;
  ProgressMeter meter;
  int seconds = 0;
  const auto add = [&](const std::vector<Process>& processes) {
    meter.add({Clock::time_point(std::chrono::seconds(++seconds)), processes, std::nullopt});
    return Clock::time_point(std::chrono::seconds(seconds));
  };
  const auto first =
      task.read_until([](const auto& found) { return found.size() == 2 && found[0].state == 'S'; });
  EXPECT_EQ(first[0].pid, task.pid());
  add(first);
  add(task.read_until([&](const auto& found) {
    return found.size() == 2 && found[1].cpu >= first[1].cpu + std::chrono::milliseconds(30);
  }));
  EXPECT_FALSE(meter.quiet_since());
  kill(first[1].pid, SIGKILL);
  add(task.read_until([](const auto& found) { return found.size() == 1; }));
  EXPECT_FALSE(meter.quiet_since()) << "one has ended";
  const auto quiet = add(task.read());
  add(task.read());
  EXPECT_EQ(meter.quiet_since(), quiet);
  EXPECT_FALSE(meter.stopped_since());

  kill(task.pid(), SIGSTOP);
  ASSERT_EQ(waitpid(task.pid(), nullptr, WUNTRACED), task.pid());
  const auto stopped = add(task.read());
  add(task.read());
  EXPECT_EQ(meter.stopped_since(), stopped);
}

}  // namespace
}  // namespace ddp::watch
