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

// The name of this process, by which guards are found.
class GuardName {
 public:
  GuardName() {
    prctl(PR_GET_NAME, own_.data());
    prctl(PR_SET_NAME, kGuardName);
  }
  GuardName(const GuardName&) = delete;
  GuardName& operator=(const GuardName&) = delete;
  ~GuardName() { prctl(PR_SET_NAME, own_.data()); }

 private:
  std::array<char, 17> own_{};
};

TEST(NodeRecord, IsFoundByItsNameAmongTheFilesOfAGuard) {
  const std::string name = "ddp-guard-1.0@node/1 " + std::to_string(getpid());
  const FileDescriptor file = make_node_record(name);
  const FileDescriptor other = make_node_record(name + "0");
  EXPECT_TRUE(find_node_records("/proc", name).empty()) << "this process is no guard";
  const GuardName as_a_guard;
  const auto found = find_node_records("/proc", name);
  ASSERT_EQ(found.size(), 1U);
  NodeRecord(file.get()).slot(3).rank = 7;
  NodeRecord record(found.front().get());
  EXPECT_EQ(record.slot(3).rank, 7U);
}

TEST(NodeRecord, IsJoinedOnceAndOnlyInTheSameProgram) {
  const FileDescriptor file = make_node_record();
  NodeRecord first(file.get());
  NodeRecord second(-1);
  EXPECT_FALSE(second.join(-1, 1));
  EXPECT_FALSE(second.join(file.get(), 1)) << "the first rank has not begun";
  first.slot(0).state = RankSlot::running;
  first.slot(1).state = RankSlot::finished;
  EXPECT_FALSE(second.join(file.get(), 1)) << "an earlier program of the step";
  first.slot(1).state = RankSlot::absent;
  first.slot(0).state = RankSlot::failed;
  EXPECT_FALSE(second.join(file.get(), 1)) << "an earlier program of the step";
  EXPECT_FALSE(second.is_shared());
  second.slot(1).rank = 5;
  first.slot(0).state = RankSlot::running;
  EXPECT_TRUE(second.join(file.get(), 1));
  EXPECT_TRUE(second.is_shared());
  EXPECT_EQ(second.slot(1).rank, 0U) << "nothing is taken along";
  EXPECT_FALSE(second.join(file.get(), 1)) << "it is shared already";
}

TEST(NodeRecord, KeepsTheSoonestEndOfTheStep) {
  NodeRecord record(-1);
  EXPECT_FALSE(record.step_end());
  EXPECT_TRUE(record.is_step_end_told()) << "there is nothing to tell";
  const auto now = Clock::now();
  record.end_step({now + std::chrono::seconds(10), 1, false});
  ASSERT_TRUE(record.step_end());
  EXPECT_EQ(record.step_end()->code, 1);
  EXPECT_FALSE(record.step_end()->is_explained);
  EXPECT_FALSE(record.is_step_end_told());
  record.set_step_end_told(*record.step_end());
  EXPECT_TRUE(record.is_step_end_told());
  record.end_step({now + std::chrono::seconds(2), 137});
  EXPECT_FALSE(record.is_step_end_told()) << "another one is";
  record.end_step({now + std::chrono::seconds(5), 2});
  const auto end = *record.step_end();
  EXPECT_EQ(end.code, 137);
  EXPECT_TRUE(end.is_explained);
  EXPECT_GE(end.at, now + std::chrono::seconds(2));
  EXPECT_LE(end.at, now + std::chrono::milliseconds(2001));
}

TEST(NodeRecord, OfAnotherUserIsNotTaken) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can open it";
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t stranger = fork();
  if (stranger == 0) {
    constexpr uid_t kNobody = 65534;
    if (setuid(kNobody) != 0) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // setuid(2) clears it
    prctl(PR_SET_NAME, kGuardName);
    const FileDescriptor file = make_node_record("ddp-guard-stranger");
    if (write(ready[1], "r", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  char letter = 0;
  const bool is_ready = read(ready[0], &letter, 1) == 1;
  close(ready[0]);
  const bool can_look = access(("/proc/" + std::to_string(stranger) + "/fd/0").c_str(), F_OK) == 0;
  const auto found = find_node_records("/proc", "ddp-guard-stranger");
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
  EXPECT_TRUE(is_ready);
  EXPECT_TRUE(found.empty());
  if (!can_look) GTEST_SKIP() << "this root may not look at the files of others";
}

}  // namespace
}  // namespace ddp::guard
