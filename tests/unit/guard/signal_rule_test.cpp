// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/signal_rule.h"

#include <gtest/gtest.h>

#include <csignal>

namespace ddp::guard {
namespace {

TEST(SignalRule, PassesOnWhatOnlyTheGuardGot) {
  EXPECT_TRUE(is_to_be_passed_on({SIGUSR1, false, Sender::other}, true));
  EXPECT_TRUE(is_to_be_passed_on({SIGTERM, false, Sender::launcher}, false));
  EXPECT_TRUE(is_to_be_passed_on({SIGTSTP, false, Sender::launcher}, false));
  EXPECT_TRUE(is_to_be_passed_on({SIGRTMIN + 3, false, Sender::other}, true));
}

TEST(SignalRule, PassesOnHangupAndTimers) {
  for (const int number : {SIGHUP, SIGALRM, SIGVTALRM, SIGPROF}) {
    EXPECT_TRUE(is_to_be_passed_on({number, true, Sender::other}, true)) << number;
  }
}

TEST(SignalRule, KeepsWhatTheTaskGotTooOrSent) {
  EXPECT_FALSE(is_to_be_passed_on({SIGTERM, false, Sender::launcher}, true));
  EXPECT_FALSE(is_to_be_passed_on({SIGUSR1, false, Sender::task}, false));
  EXPECT_FALSE(is_to_be_passed_on({SIGINT, true, Sender::other}, false)) << "of the keyboard";
  EXPECT_FALSE(is_to_be_passed_on({SIGXFSZ, true, Sender::other}, false)) << "of its own write";
  EXPECT_FALSE(is_to_be_passed_on({SIGCHLD, false, Sender::other}, false));
}

TEST(SignalRule, KnowsWhichLaunchersReachAllProcesses) {
  constexpr const char* kStep = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n";
  EXPECT_FALSE(reaches_all("slurmstepd", kStep));
  EXPECT_TRUE(reaches_all("slurmstepd", "0::/system.slice/slurmd.service\n"));
  EXPECT_FALSE(reaches_all("orted", ""));
  EXPECT_FALSE(reaches_all("bash", ""));
}

}  // namespace
}  // namespace ddp::guard
