// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/verdict.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

namespace ddp::guard {
namespace {

constexpr const char* kTraceback =
    "Traceback (most recent call last):\n"
    "  File \"/home/u/train.py\", line 88, in <module>\n"
    "    step(17)\n"
    "ValueError: bad sample 17\n";
constexpr int kFailed = W_EXITCODE(1, 0);
constexpr int kKilled = W_EXITCODE(0, SIGKILL);

std::string said(const Ending& ending) {
  return verdict(ending, "rank 5", "node2");
}

std::string said(int status, std::string_view errors = "") {
  return said({status, false, false, 0, 0, errors, Peers::other_ranks});
}

// How many processes the kernel killed: of the rank's cgroup, and of the node.
std::string said_after_kills(int status, std::uint64_t cgroup, std::uint64_t node) {
  return said({status, false, false, cgroup, node, kTraceback, Peers::other_ranks});
}

TEST(Verdict, NamesTheFirstErrorAndItsPlace) {
  EXPECT_EQ(said(kFailed, kTraceback),
            "rank 5 (node2) failed: ValueError: bad sample 17 (train.py:88), exit code 1");
  EXPECT_EQ(verdict({kFailed, false, false, 0, 0, kTraceback, Peers::none}, "rank 5", ""),
            "rank 5 failed: ValueError: bad sample 17 (train.py:88), exit code 1");
}

TEST(Verdict, SaysHowASilentRankEnded) {
  EXPECT_EQ(said(W_EXITCODE(3, 0)), "rank 5 (node2) ended with exit code 3");
  EXPECT_EQ(said(kKilled), "rank 5 (node2) was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(said(W_EXITCODE(0, SIGSEGV) | WCOREFLAG),
            "rank 5 (node2) was killed by signal 11 (SIGSEGV), core dumped");
  EXPECT_EQ(said(W_EXITCODE(0, 40)), "rank 5 (node2) was killed by signal 40 (SIGRTMIN+6)");
}

constexpr const char* kEcho =
    "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:1234\n";

TEST(Verdict, IsSilentAboutAGoodEndAndAnEcho) {
  EXPECT_EQ(said(0, kTraceback), "");
  EXPECT_EQ(said(kFailed, kEcho), "");
  EXPECT_EQ(said(W_EXITCODE(0, SIGABRT), kEcho), "");
}

TEST(Verdict, SpeaksIfAnEchoCannotBeTheReason) {
  EXPECT_EQ(said(W_EXITCODE(0, SIGSEGV), kEcho),
            "rank 5 (node2) was killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(said(kKilled, kEcho), "rank 5 (node2) was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(said({kFailed, false, false, 0, 0, kEcho, Peers::none}),
            "rank 5 (node2) ended with exit code 1");
}

TEST(Verdict, IsSilentAboutAnEndThatTheLauncherOrdered) {
  EXPECT_EQ(said({W_EXITCODE(0, SIGUSR1), false, true, 0, 0, kTraceback, Peers::other_ranks}), "");
  EXPECT_EQ(said({W_EXITCODE(9, 0), true, false, 0, 0, "", Peers::other_ranks}), "");
  EXPECT_EQ(said({kFailed, true, false, 0, 0, kEcho, Peers::none}), "");
  EXPECT_EQ(said({kFailed, true, false, 0, 0,
                  "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n"
                  "KeyboardInterrupt\n",
                  Peers::other_ranks}),
            "");
}

TEST(Verdict, TellsAnErrorAfterTheOrderFromOneBefore) {
  EXPECT_EQ(said({kFailed, true, false, 0, 0, kTraceback, Peers::other_ranks}),
            "rank 5 (node2) failed after SLURM had told it to end: ValueError: bad sample 17 "
            "(train.py:88), exit code 1");
}

TEST(Verdict, DoesNotBlameAnExceptionForASignal) {
  EXPECT_EQ(said(kKilled, "cat: /no/such: No such file or directory\n"),
            "rank 5 (node2) was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(said(W_EXITCODE(0, SIGSEGV), kTraceback),
            "rank 5 (node2) was killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(said(W_EXITCODE(0, SIGABRT),
                 "terminate called after throwing an instance of 'std::runtime_error'\n"
                 "  what():  no device\n"),
            "rank 5 (node2) failed: std::runtime_error: no device, signal 6 (SIGABRT)");
  EXPECT_EQ(said(W_EXITCODE(0, SIGSEGV), std::string(kTraceback) +
                                             "Fatal Python error: Segmentation fault\n\n"
                                             "Current thread 0x00007f (most recent call first):\n"
                                             "  File \"/home/u/train.py\", line 9 in step\n"),
            "rank 5 (node2) failed: Fatal Python error: Segmentation fault (train.py:9), signal 11 "
            "(SIGSEGV)");
}

TEST(Verdict, TellsLackOfMemoryFromAnotherKill) {
  constexpr const char* kRemedy = "; ask for more with --mem, or use fewer loader workers";
  EXPECT_EQ(said_after_kills(kKilled, 1, 1),
            std::string("rank 5 (node2) was killed by the kernel for lack of memory") + kRemedy);
  EXPECT_EQ(said_after_kills(kFailed, 2, 2),
            std::string("rank 5 (node2) failed: ValueError: bad sample 17 (train.py:88), exit code "
                        "1; meanwhile the kernel killed 2 processes of its cgroup for lack of "
                        "memory") +
                kRemedy);
  EXPECT_EQ(said({kFailed, false, false, 1, 1, kEcho, Peers::other_ranks}),
            std::string("rank 5 (node2) ended with exit code 1; meanwhile the kernel killed 1 "
                        "process of its cgroup for lack of memory") +
                kRemedy);
  EXPECT_EQ(said_after_kills(kKilled, 0, 1),
            std::string("rank 5 (node2) was killed by signal 9 (SIGKILL); the kernel killed 1 "
                        "process of this node for lack of memory meanwhile, so it was perhaps one "
                        "of them") +
                kRemedy);
  EXPECT_EQ(said_after_kills(kFailed, 0, 1),
            "rank 5 (node2) failed: ValueError: bad sample 17 (train.py:88), exit code 1")
      << "another job's lack of memory";
}

TEST(Verdict, NamesTheWorkerThatTorchrunNames) {
  constexpr const char* kTable =
      "Root Cause (first observed failure):\n[0]:\n  time      : now\n  host      : node2\n"
      "  rank      : 9 (local_rank: 1)\n  exitcode  : -9 (pid: 77)\n  error_file: <N/A>\n";
  EXPECT_EQ(verdict({kFailed, false, false, 0, 0, kTable, Peers::own_workers}, "torchrun's agent 1",
                    "node2"),
            "rank 9 (node2) failed: its process was killed by signal 9 (SIGKILL), exit code 1");
  // A task that has a number of its own is not another one, whatever it prints.
  EXPECT_EQ(said(kFailed, "[rank0]: ValueError: bad\n").substr(0, 14), "rank 5 (node2)");
}

}  // namespace
}  // namespace ddp::guard
