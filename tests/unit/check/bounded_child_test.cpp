// Processes that answer, hang, die or write too much.
#include "ddp_runtime/check/bounded_child.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

namespace ddp::check {
namespace {

using Clock = std::chrono::steady_clock;

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

TEST(BoundedChild, BringsWhatTheWorkReturns) {
  const std::string text(100'000, 'x');  // more than a pipe holds
  auto child = BoundedChild::calling([&text] { return text; });
  const auto output = child.wait(from_now(10'000));
  EXPECT_FALSE(output.timed_out);
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_EQ(output.text, text);
}

TEST(BoundedChild, WorkThatFailsOrCrashesIsToldFromWorkThatIsDone) {
  auto failing = BoundedChild::calling([]() -> std::string { throw std::runtime_error("no"); });
  EXPECT_EQ(failing.wait(from_now(10'000)).exit_code, 1);
  auto crashing = BoundedChild::calling([]() -> std::string {
    kill(getpid(), SIGKILL);
    return "";
  });
  EXPECT_EQ(crashing.wait(from_now(10'000)).exit_code, -1);
}

TEST(BoundedChild, WorkThatHangsIsEndedWithAllItStarted) {
  auto child = BoundedChild::running({"sh", "-c", "sleep 1000 & echo $!; wait"});
  const auto output = child.wait(from_now(500));
  EXPECT_TRUE(output.timed_out);
  EXPECT_EQ(output.exit_code, -1);
  EXPECT_TRUE(is_gone(std::atoi(output.text.c_str())));
}

TEST(BoundedChild, DiesWithItsOwner) {
  const std::string file = testing::TempDir() + "bounded_child_pid";
  {
    const auto child =
        BoundedChild::running({"sh", "-c", "echo $$ > " + file + "; exec sleep 1000"});
    for (int i = 0; i < 500 && access(file.c_str(), R_OK) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  auto reader = BoundedChild::running({"cat", file});
  const int pid = std::atoi(reader.wait(from_now(10'000)).text.c_str());
  unlink(file.c_str());
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(is_gone(pid));
}

TEST(BoundedChild, ProgramsAndTheirExitCodes) {
  auto both = BoundedChild::running({"sh", "-c", "echo out; echo error >&2; exit 7"});
  const auto output = both.wait(from_now(10'000));
  EXPECT_EQ(output.exit_code, 7);
  EXPECT_EQ(output.text, "out\nerror\n");
  EXPECT_EQ(BoundedChild::running({"/nowhere/program"}).wait(from_now(10'000)).exit_code, 127);
}

TEST(BoundedChild, KeepsAMebibyteOfEndlessOutput) {
  auto child = BoundedChild::running({"sh", "-c", "head -c 3000000 /dev/zero; exit 3"});
  const auto output = child.wait(from_now(10'000));
  EXPECT_EQ(output.text.size(), std::size_t{1} << 20);
  EXPECT_EQ(output.exit_code, 3);
}

TEST(BoundedChild, HoldsNoFileOfItsParentOpen) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto child = BoundedChild::running({"sleep", "1000"});
  close(ends[1]);
  for (int i = 0; i < 500; ++i) {  // the child closes its copy a moment after it is made
    pollfd entry{ends[0], POLLIN, 0};
    if (poll(&entry, 1, 10) > 0) break;
  }
  pollfd entry{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 1);  // the end of the file, as nobody else can write
  close(ends[0]);
}

}  // namespace
}  // namespace ddp::check
