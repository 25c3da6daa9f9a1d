// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/worker_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/temporary_directory.h"

namespace ddp::watch {
namespace {

Process started(pid_t pid, pid_t parent) {
  Process made;
  made.pid = pid;
  made.parent = parent;
  made.start = 7;
  return made;
}

std::vector<pid_t> numbers_of(const RankProcesses& worker) {
  std::vector<pid_t> numbers;
  for (const auto& member : worker.processes) numbers.push_back(member.pid);
  return numbers;
}

class WorkerRanksTest : public testing::Test {
 protected:
  void set_environment(pid_t pid, const std::string& variables) {
    std::string text = variables;
    std::ranges::replace(text, ' ', '\0');
    test::write(root_.path() / std::to_string(pid) / "environ", text);
  }
  void update(const std::vector<Process>& processes) {
    ranks_.update(root_.path().string(), processes);
  }
  test::TemporaryDirectory root_;
  WorkerRanks ranks_;
};

TEST_F(WorkerRanksTest, AreThoseOfTheEnvironmentsWithAllThatAWorkerHasStarted) {
  const std::vector<Process> processes{started(10, 1), started(11, 1), started(12, 1),
                                       started(13, 11), started(14, 13)};
  set_environment(10, "HOME=/ LOCAL_RANK=5");
  set_environment(11, "GROUP_RANK=9 RANK=3 HOME=/");
  set_environment(12, "RANK=2");
  set_environment(13, "RANK=3");
  set_environment(14, "HOME=/");
  update(processes);
  const auto workers = ranks_.workers_in(processes);
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].rank, 3U);
  EXPECT_EQ(numbers_of(workers[0]), (std::vector<pid_t>{11, 13, 14}));
  EXPECT_EQ(workers[1].rank, 2U);
  EXPECT_EQ(numbers_of(workers[1]), (std::vector<pid_t>{12}));
}

TEST_F(WorkerRanksTest, AreReadUntilTheyAreKnownAndThenKept) {
  std::vector<Process> processes{started(10, 1)};
  set_environment(10, "HOME=/");
  update(processes);
  EXPECT_TRUE(ranks_.workers_in(processes).empty());
  set_environment(10, "RANK=4");
  EXPECT_TRUE(ranks_.workers_in(processes).empty()) << "nothing is read";
  update(processes);
  set_environment(10, "RANK=5");
  update(processes);
  ASSERT_EQ(ranks_.workers_in(processes).size(), 1U);
  EXPECT_EQ(ranks_.workers_in(processes).front().rank, 4U);
  processes.front().start = 8;  // another process of that number
  EXPECT_TRUE(ranks_.workers_in(processes).empty());
  update(processes);
  EXPECT_EQ(ranks_.workers_in(processes).front().rank, 5U);
}

}  // namespace
}  // namespace ddp::watch
