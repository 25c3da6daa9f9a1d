// SPDX-License-Identifier: Apache-2.0
// The processes below a given one, in directories that look like /proc.
#include "spank_plugin/watch/process_tree.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "tests/unit/temporary_directory.h"

namespace ddp::watch {
namespace {

// A line of /proc/PID/stat: 3, 4, 50 and 60 ticks of CPU time.
std::string stat_line(pid_t pid, const std::string& name, char state = 'S', int threads = 1) {
  return std::to_string(pid) + " (" + name + ") " + state +
         " 6 1 1 0 -1 0 1 2 3 4 3 4 50 60 20 0 " + std::to_string(threads) + " 0 7777 1 2\n";
}

TEST(ParseStat, ReadsTheFields) {
  const auto process = parse_stat(stat_line(42, "python", 'R'));
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, 42);
  EXPECT_EQ(process->parent, 6);
  EXPECT_EQ(process->start, 7777U);
  EXPECT_EQ(process->state, 'R');
  EXPECT_EQ(process->cpu.count() * sysconf(_SC_CLK_TCK), 117'000);
}

TEST(ParseStat, TakesAnyName) {
  for (const char* name : {"a) R (b", "a b", "", ")", "(", ") Z 1", "a\nb", "\xff ("}) {
    const auto process = parse_stat(stat_line(42, name));
    ASSERT_TRUE(process) << name;
    EXPECT_EQ(process->state, 'S') << name;
    EXPECT_EQ(process->start, 7777U) << name;
  }
}

TEST(ParseStat, RefusesAnythingElse) {
  const std::string good = stat_line(42, "x");
  for (const std::string& bad :
       {std::string(), std::string("42"), std::string("42 (x"), std::string("42 (x) "),
        std::string("42) S ("), good.substr(0, 40), "x" + good, "-" + good}) {
    EXPECT_FALSE(parse_stat(bad)) << bad;
  }
}

TEST(ParseStat, CountsAZombieAsEndedUnlessAThreadRuns) {
  EXPECT_FALSE(parse_stat(stat_line(42, "x", 'Z')));
  EXPECT_TRUE(parse_stat(stat_line(42, "x", 'Z', 2)));
}

class FakeProc : public testing::Test {
 protected:
  void add(pid_t pid, const std::string& children, char state = 'S') {
    test::write(of(pid) / "stat", stat_line(pid, "x", state));
    add_thread(pid, pid, children);
  }
  void add_thread(pid_t pid, pid_t thread, const std::string& children) {
    test::write(of(pid) / "task" / std::to_string(thread) / "children", children);
  }
  std::filesystem::path of(pid_t pid) { return root_.path() / std::to_string(pid); }
  std::vector<Process> read() { return read_processes(root_.path().string(), 5, 10); }
  std::vector<pid_t> pids() {
    std::vector<pid_t> pids;
    for (const auto& process : read()) pids.push_back(process.pid);
    return pids;
  }

  test::TemporaryDirectory root_;
};

TEST_F(FakeProc, HasTheTaskFirstAndThenAllBelowTheParent) {
  add(5, "8 10 ");
  add(8, "");  // adopted by the parent
  add(10, "20 ");
  add_thread(10, 11, "30 ");
  add(20, "40 ");
  add(30, "");
  add(40, "");
  const auto found = pids();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front(), 10);
  EXPECT_EQ(std::set<pid_t>(found.begin(), found.end()), (std::set<pid_t>{8, 10, 20, 30, 40}));
}

TEST_F(FakeProc, LeavesOutWhatHasEnded) {
  add(5, "10 ");
  add(10, "20 30 40 ");
  add(20, "", 'Z');
  add(40, "");
  EXPECT_EQ(pids(), (std::vector<pid_t>{10, 40}));
}

TEST_F(FakeProc, IsEmptyWithoutListsOfChildren) {
  test::write(of(10) / "stat", stat_line(10, "x"));
  EXPECT_EQ(pids(), std::vector<pid_t>()) << "the task's own children may work";
}

TEST_F(FakeProc, SurvivesACircleAndACutNumber) {
  add(5, "10 ");
  add(10, "5 10 20 3");
  add(20, "10 ");
  add(3, "");
  EXPECT_EQ(pids(), (std::vector<pid_t>{10, 20}));
}

TEST_F(FakeProc, IsBounded) {
  add(5, "10 ");
  std::string children;
  for (pid_t pid = 100; pid < 5000; ++pid) children += std::to_string(pid) + " ";
  add(10, children);
  add(100 + 4094, "");
  add(100 + 4095, "");
  EXPECT_EQ(pids(), (std::vector<pid_t>{10, 100 + 4094})) << "4096 with the task";
}

TEST_F(FakeProc, AddsUpWhatIsReadAndWritten) {
  add(5, "10 ");
  add(10, "20 30 ");
  add(20, "");
  add(30, "", 'D');
  test::write(of(10) / "io", "rchar: 300\nwchar: 20\nsyscr: 1000\nread_bytes: 5000\n");
  test::write(of(30) / "io", "rchar: 300\n");
  const auto found = read();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].io, 5320U);
  EXPECT_EQ(found[1].io, std::nullopt);
  EXPECT_EQ(found[2].io, std::nullopt) << "reading it may wait for the same thing";
}

}  // namespace
}  // namespace ddp::watch
