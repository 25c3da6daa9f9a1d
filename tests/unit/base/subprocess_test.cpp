// SPDX-License-Identifier: Apache-2.0
// Child processes that answer, hang, die or write too much.
#include "base/subprocess.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

namespace ddp {
namespace {

using namespace std::chrono_literals;

Clock::time_point from_now(int milliseconds) {
  return Clock::now() + std::chrono::milliseconds(milliseconds);
}

bool is_gone(pid_t pid) {
  for (int i = 0; i < 500; ++i) {
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Subprocess, ReturnsTheResultOfTheFunction) {
  const std::string text(100'000, 'x');  // more than a pipe holds
  auto child = Subprocess::calling([&text] { return text; });
  const auto output = child.wait(from_now(10'000));
  EXPECT_FALSE(output.timed_out);
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_EQ(output.text, text);
}

TEST(Subprocess, ExitCodeShowsFailureAndCrash) {
  auto failing = Subprocess::calling([]() -> std::string { throw std::runtime_error("no"); });
  EXPECT_EQ(failing.wait(from_now(10'000)).exit_code, 1);
  auto crashing = Subprocess::calling([]() -> std::string {
    kill(getpid(), SIGKILL);
    return "";
  });
  EXPECT_EQ(crashing.wait(from_now(10'000)).exit_code, -1);
}

// Both while it has its output open, and after it has closed it.
TEST(Subprocess, IsKilledOnRequest) {
  for (const char* script : {"sleep 1000", "exec >&- 2>&-; sleep 1000"}) {
    auto child = Subprocess::running({"sh", "-c", script});
    std::atomic<bool> stop = false;
    std::thread asks([&stop] {
      std::this_thread::sleep_for(300ms);
      stop = true;
    });
    const auto output = child.wait(from_now(600'000), {}, [&stop] { return stop.load(); });
    asks.join();
    EXPECT_TRUE(output.timed_out) << script;
    EXPECT_EQ(output.exit_code, -1) << script;
  }
  auto quick = Subprocess::running({"sh", "-c", "sleep 0.3; echo done; exit 4"});
  const auto output = quick.wait(from_now(600'000), {}, [] { return false; });
  EXPECT_EQ(output.text, "done\n");
  EXPECT_EQ(output.exit_code, 4);
}

TEST(Subprocess, HangingProcessIsKilledWithItsChildren) {
  auto child = Subprocess::running({"sh", "-c", "sleep 1000 & echo $!; wait"});
  const auto output = child.wait(from_now(500));
  EXPECT_TRUE(output.timed_out);
  EXPECT_EQ(output.exit_code, -1);
  EXPECT_TRUE(is_gone(std::atoi(output.text.c_str())));
}

TEST(Subprocess, DiesWithItsParent) {
  const std::string file = testing::TempDir() + "bounded_child_pid";
  {
    const auto child = Subprocess::running({"sh", "-c", "echo $$ > " + file + "; exec sleep 1000"});
    for (int i = 0; i < 500 && access(file.c_str(), R_OK) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  auto reader = Subprocess::running({"cat", file});
  const int pid = std::atoi(reader.wait(from_now(10'000)).text.c_str());
  unlink(file.c_str());
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(is_gone(pid));
}

TEST(Subprocess, ReturnsOutputAndExitCode) {
  auto both = Subprocess::running({"sh", "-c", "echo out; echo error >&2; exit 7"});
  const auto output = both.wait(from_now(10'000));
  EXPECT_EQ(output.exit_code, 7);
  EXPECT_EQ(output.text, "out\nerror\n");
  EXPECT_EQ(Subprocess::running({"/nowhere/program"}).wait(from_now(10'000)).exit_code, 127);
}

TEST(Subprocess, KeepsAtMostAMebibyteOfOutput) {
  auto child = Subprocess::running({"sh", "-c", "head -c 3000000 /dev/zero; exit 3"});
  const auto output = child.wait(from_now(10'000));
  EXPECT_EQ(output.text.size(), std::size_t{1} << 20);
  EXPECT_EQ(output.exit_code, 3);
}

TEST(Subprocess, ClosesInheritedFiles) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto child = Subprocess::running({"sleep", "1000"});
  close(ends[1]);
  for (int i = 0; i < 500; ++i) {  // the child closes its copy shortly after it starts
    pollfd entry{ends[0], POLLIN, 0};
    if (poll(&entry, 1, 10) > 0) break;
  }
  pollfd entry{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 1);  // end of file, because no other process holds the write end
  close(ends[0]);
}

TEST(OutputOf, ReturnsTheOutputOfASuccessfulProgram) {
  EXPECT_EQ(output_of({"sh", "-c", "echo one; echo two >&2"}, 60s, 1000), "one\n");
  EXPECT_EQ(output_of({"sh", "-c", "cat"}, 60s, 1000), "") << "no input";
}

TEST(OutputOf, IsNulloptOnFailureOrBeyondLimits) {
  EXPECT_EQ(output_of({"no-such-program"}, 60s, 1000), std::nullopt);
  EXPECT_EQ(output_of({"sh", "-c", "echo x; exit 3"}, 60s, 1000), std::nullopt);
  EXPECT_EQ(output_of({"sh", "-c", "kill -9 $$"}, 60s, 1000), std::nullopt);
  EXPECT_EQ(output_of({"sleep", "1000"}, 50ms, 1000), std::nullopt);
  EXPECT_EQ(output_of({"head", "-c", "20000", "/dev/zero"}, 60s, 20'000)->size(), 20'000U);
  EXPECT_EQ(output_of({"head", "-c", "20000", "/dev/zero"}, 60s, 19'999), std::nullopt);
  EXPECT_EQ(output_of({"yes"}, 60s, 10'000), std::nullopt) << "endless output";
  EXPECT_EQ(output_of({"sh", "-c", "echo x; exec >&- sleep 1000"}, 50ms, 1000), std::nullopt)
      << "closed its output but keeps running";
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a zombie is left";
}

// A site's `scontrol` may be a script that calls the real one.
TEST(OutputOf, KillsTheChildrenOfAScript) {
  const std::string file = testing::TempDir() + "output_of_pid";
  EXPECT_EQ(output_of({"sh", "-c", "sleep 1000 & echo $! > " + file + "; wait"}, 500ms, 1000),
            std::nullopt);
  const auto pid = output_of({"cat", file}, 60s, 1000);
  unlink(file.c_str());
  ASSERT_TRUE(pid);
  EXPECT_TRUE(is_gone(std::atoi(pid->c_str())));
}

// After vfork(2), the child shares this process's memory until it executes the program.
TEST(Subprocess, DoesNotCallTheParentsSignalHandlers) {
  static std::atomic<int> calls{0};
  const auto before = std::signal(SIGUSR1, [](int) { ++calls; });
  auto child = Subprocess::running({"sh", "-c", "kill -USR1 $$; exit 3"});
  EXPECT_EQ(child.wait(from_now(10'000)).exit_code, -1) << "killed by the signal";
  std::signal(SIGUSR1, before);
  EXPECT_EQ(calls, 0);
}

TEST(Subprocess, AddsVariablesToTheEnvironment) {
  auto child = Subprocess::running({"sh", "-c", "echo \"$ADDED $PATH\""},
                                   {.variables = {{"ADDED", "yes"}, {"PATH", "/x:/bin:/usr/bin"}}});
  EXPECT_EQ(child.wait(from_now(10'000)).text, "yes /x:/bin:/usr/bin\n");
}

TEST(Subprocess, WaitsForAProcessThatClosedItsOutput) {
  auto child = Subprocess::running({"sh", "-c", "echo x; exec >&- 2>&-; sleep 0.5; exit 4"});
  const auto output = child.wait(from_now(10'000));
  EXPECT_EQ(output.text, "x\n");
  EXPECT_EQ(output.exit_code, 4);
}

}  // namespace
}  // namespace ddp
