// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/node_record.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace ddp::guard {
namespace {

TEST(NodeRecord, KnowsTheFirstFailureOfAllProcesses) {
  const FileDescriptor file = make_node_record();
  ASSERT_TRUE(file);
  const pid_t child = fork();
  if (child == 0) _exit(NodeRecord(file.get()).is_first_failure() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_FALSE(NodeRecord(file.get()).is_first_failure());
}

TEST(NodeRecord, LetsEachSpeakWithoutAFile) {
  EXPECT_TRUE(NodeRecord(-1).is_first_failure());
  EXPECT_TRUE(NodeRecord(-1).is_first_failure());
}

TEST(NodeRecord, LeavesAloneWhatIsTooSmallToBeARecord) {
  const FileDescriptor null(dup(STDIN_FILENO));
  EXPECT_TRUE(NodeRecord(null.get()).is_first_failure());
  EXPECT_TRUE(NodeRecord(null.get()).is_first_failure());
}

TEST(NodeRecord, SharesTheLastSlot) {
  const FileDescriptor file = make_node_record();
  NodeRecord one(file.get());
  NodeRecord other(file.get());
  one.slot(NodeRecord::kMaxRanks - 1).rank = 7;
  EXPECT_EQ(other.slot(NodeRecord::kMaxRanks - 1).rank, 7U);
  EXPECT_EQ(other.slot(0).state, RankSlot::absent);
  one.slot(3).channel.set("poll_schedule_timeout.constprop.0");
  EXPECT_EQ(other.slot(3).channel.get(), "poll_schedule_timeout.constprop.");
  one.slot(3).channel.set("do_wait");
  EXPECT_EQ(other.slot(3).channel.get(), "do_wait");
}

TEST(NodeRecord, KeepsItsSizeWhateverAProcessTries) {
  const FileDescriptor file = make_node_record();
  EXPECT_NE(ftruncate(file.get(), 0), 0);
  EXPECT_NE(ftruncate(file.get(), 1 << 20), 0);
}

TEST(NodeRecord, IsFoundByItsNameAmongTheFilesOfAGuard) {
  const std::string name = "ddp-guard-1.0@node/1 " + std::to_string(getpid());
  const FileDescriptor file = make_node_record(name);
  const FileDescriptor other = make_node_record(name + "0");
  NodeRecord record(-1);
  EXPECT_FALSE(record.is_shared());
  EXPECT_FALSE(record.share(find_node_record("/proc", name).get())) << "this process is no guard";
  prctl(PR_SET_NAME, kGuardName);
  EXPECT_TRUE(record.share(find_node_record("/proc", name).get()));
  EXPECT_TRUE(record.is_shared());
  NodeRecord(file.get()).slot(3).rank = 7;
  EXPECT_EQ(record.slot(3).rank, 7U);
}

TEST(NodeRecord, OfAnotherUserIsNotTaken) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can open it";
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t stranger = fork();
  if (stranger == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    constexpr uid_t kNobody = 65534;
    if (setuid(kNobody) != 0) _exit(1);
    prctl(PR_SET_NAME, kGuardName);
    const FileDescriptor file = make_node_record("ddp-guard-stranger");
    if (write(ready[1], "r", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char letter = 0;
  ASSERT_EQ(read(ready[0], &letter, 1), 1);
  EXPECT_FALSE(find_node_record("/proc", "ddp-guard-stranger"));
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
}

}  // namespace
}  // namespace ddp::guard
