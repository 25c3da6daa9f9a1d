// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/wait_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/text_file.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::watch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Process process(pid_t pid, pid_t parent) {
  Process made;
  made.pid = pid;
  made.parent = parent;
  return made;
}

class WaitChannel : public testing::Test {
 protected:
  void add(pid_t pid, const std::string& channel) {
    test::write(root_.path() / std::to_string(pid) / "wchan", channel);
  }
  std::string read(const std::vector<Process>& processes) {
    return find_waiting_process(root_.path().string(), processes).channel;
  }
  test::TemporaryDirectory root_;
};

TEST_F(WaitChannel, IsThatOfTheProcessForWhichAShellWaits) {
  add(10, "do_wait");
  add(11, "locks_lock_inode_wait");
  add(12, "pipe_read");
  EXPECT_EQ(read({process(10, 5), process(11, 10), process(12, 11)}), "locks_lock_inode_wait");
  EXPECT_EQ(read({process(10, 5), process(12, 5)}), "do_wait") << "not its child";
  EXPECT_EQ(read({process(12, 5), process(11, 12)}), "pipe_read");
}

TEST_F(WaitChannel, IsThatOfTheChildThatHasWorkedMost) {
  add(10, "sigsuspend");  // timeout(1)
  add(11, "do_wait");
  add(12, "hrtimer_nanosleep");
  add(13, "do_epoll_wait");
  add(14, "futex_wait");
  std::vector<Process> processes{process(10, 5), process(11, 10), process(12, 11), process(13, 11),
                                 process(14, 13)};
  processes[2].cpu = std::chrono::seconds(2);
  processes[4].cpu = std::chrono::seconds(3);
  const auto found = find_waiting_process(root_.path().string(), processes);
  EXPECT_EQ(found.pid, 13);
  EXPECT_EQ(found.channel, "do_epoll_wait");
}

TEST_F(WaitChannel, IsUnknownForOneThatRunsOrIsGone) {
  add(10, "0");
  EXPECT_EQ(read({process(10, 5)}), "");
  EXPECT_EQ(read({process(11, 5)}), "");
  EXPECT_EQ(read({}), "");
  add(20, "do_wait");
  add(21, "do_wait");
  EXPECT_EQ(read({process(20, 21), process(21, 20)}), "") << "a circle";
}

TEST_F(WaitChannel, IsTheKernelsForARealProcess) {
  const auto file = root_.path() / "lock";
  const int held = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    flock(open(file.c_str(), O_RDWR), LOCK_EX);
    _exit(0);
  }
  const std::vector<Process> processes{process(child, getpid())};
  std::string words;
  while (words != "a file lock") {  // the test's time limit ends it otherwise
    words = wait_in_words(find_waiting_process("/proc", processes).channel);
    usleep(1000);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(held);
}

TEST(WaitInWords, KeepsANameThatItDoesNotKnow) {
  EXPECT_EQ(wait_in_words("poll_schedule_timeout.constprop.0"), "a socket or a pipe");
  EXPECT_EQ(wait_in_words("futex_do_wait"), "another thread (futex)");
  EXPECT_EQ(wait_in_words("drm_syncobj_wait\n"), "drm_syncobj_wait?");
}

std::vector<RankWait> ranks_in(const std::vector<std::string>& channels) {
  std::vector<RankWait> ranks;
  for (const auto& channel : channels) {
    ranks.push_back({static_cast<std::uint32_t>(ranks.size()), channel, ""});
  }
  return ranks;
}

TEST(GroupByWait, PutsTheOddRankFirst) {
  const auto groups =
      group_by_wait(ranks_in({"futex_wait", "", "pipe_read", "futex_do_wait", "futex_wait"}));
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].how, "for data from a pipe");
  EXPECT_THAT(groups[0].ranks, ElementsAre(2));
  EXPECT_THAT(groups[1].ranks, ElementsAre(0, 3, 4));
  EXPECT_THAT(group_by_wait({}), IsEmpty());
}

TEST(GroupByWait, SaysThatAPlaceIsUnknownIfAnotherIsKnown) {
  const std::vector<RankWait> ranks{
      {0, "futex_wait", "a.py:1"}, {1, "futex_wait", ""}, {2, "", ""}};
  const auto groups = group_by_wait(ranks);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].how, "for another thread (futex) at a.py:1");
  EXPECT_EQ(groups[1].how, "for another thread (futex) at an unknown place");
  EXPECT_EQ(groups[2].how, "at an unknown place");
}

// Of the recorded hangs of recorded_runs_test.cpp in which all three ranks live on; the cause is
// rank 1.
TEST(GroupByWait, NamesTheCauseOfRecordedHangs) {
  struct Recorded {
    const char* hang;
    const char* cause;
    const char* others;
  };
  const char* const futex = "futex_do_wait";
  const char* const poll = "poll_schedule_timeout.constprop.0";
  for (const auto& [hang, cause, others] : std::vector<Recorded>{
           {"dstate", "kernel_clone", futex},
           {"extra", futex, poll},
           {"fifo", "wait_for_partner", futex},
           {"flock", "locks_lock_inode_wait", futex},
           {"gil_sleep", "__do_sys_pause", futex},
           {"loader_sleep", poll, futex},
           {"missing", poll, futex},
           {"poll_sleep", "hrtimer_nanosleep", futex},
           {"sigstop", "do_signal_stop", futex},
           {"stdin", "anon_pipe_read", futex},
           {"worker_lock", poll, futex},
       }) {
    const auto groups = group_by_wait(ranks_in({others, cause, others}));
    ASSERT_EQ(groups.size(), 2U) << hang;
    EXPECT_THAT(groups[0].ranks, ElementsAre(1)) << hang;
    EXPECT_NE(groups[0].how, std::string("for ") + cause) << "it has words";
  }
}

}  // namespace
}  // namespace ddp::watch
