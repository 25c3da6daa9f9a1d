// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/post_mortem/explanation.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddp::post_mortem {
namespace {

const std::string kTraceback =
    "[rank3]: Traceback (most recent call last):\n"
    "[rank3]:   File \"/home/u/train.py\", line 88, in <module>\n"
    "[rank3]: ValueError: bad sample 17\n";
const std::string kEcho =
    "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:1\n";
const std::string kTimeLimit =
    "slurmstepd: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-30T14:00:00 DUE TO TIME LIMIT "
    "***\n";
const std::string kCancelled =
    "slurmstepd: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-30T14:00:00 ***\n";
const std::string kKilled = "srun: error: node2: task 1: Killed\n";

std::string what_in(const std::vector<std::string>& texts, const JobRecord* job = nullptr) {
  std::vector<Log> logs;
  for (const auto& text : texts) logs.push_back({std::to_string(logs.size()) + ".log", text});
  const auto explanation = explain(job, logs);
  return explanation ? explanation->what : "nothing";
}

std::string remedy_in(const std::string& text, const JobRecord* job = nullptr) {
  const std::vector<Log> logs{{"0.log", text}};
  const auto explanation = explain(job, logs);
  return explanation ? explanation->remedy : "nothing";
}

JobRecord in_state(const std::string& state) {
  return {state, "node[1-2]", "", "", ""};
}

TEST(Explanation, IsTheFirstErrorOfTheRankThatHasIt) {
  EXPECT_EQ(what_in({kEcho + kTraceback + kKilled}),
            "rank 3 failed: ValueError: bad sample 17 (train.py:88)");
  EXPECT_EQ(what_in({kEcho, kTraceback, kEcho}),
            "rank 3 failed: ValueError: bad sample 17 (train.py:88), in 1.log");
  EXPECT_EQ(what_in({"KeyError: 'lr'\n"}), "the first error: KeyError: 'lr'");
}

TEST(Explanation, PrefersWhatTheGuardSaw) {
  const std::string watch =
      "3: ddp: watch: rank 1 (node2) was killed by signal 9 (SIGKILL)\n"
      "ddp: watch: rank 1 (node2) left 2 processes behind, now ended: python3\n";
  EXPECT_EQ(what_in({kTraceback + watch}), "rank 1 (node2) was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(
      what_in({"ddp: watch: rank 1 (node2) left 1 process behind, now ended: sh\n" + kTraceback}),
      "rank 3 failed: ValueError: bad sample 17 (train.py:88)");
}

TEST(Explanation, NamesAnErrorThatTheJobOutlivedUntilItsTimeLimit) {
  EXPECT_EQ(what_in({kTraceback + kTimeLimit}),
            "rank 3 failed: ValueError: bad sample 17 (train.py:88); later the job reached its "
            "time limit");
  const JobRecord timeout = in_state("TIMEOUT");
  EXPECT_EQ(what_in({"all well\n"}, &timeout), "the job reached its time limit");
  EXPECT_EQ(what_in({kEcho + kTimeLimit}), "the job reached its time limit");
  EXPECT_EQ(what_in({kTimeLimit + kTraceback}), "the job reached its time limit");
  const JobRecord boot = in_state("BOOT_FAIL");
  EXPECT_EQ(what_in({""}, &boot), "a node of the job did not boot");
}

TEST(Explanation, DoesNotBlameTheAnswerToASignal) {
  const std::string interrupt =
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyboardInterrupt\n";
  EXPECT_EQ(what_in({kCancelled + interrupt + kKilled}), "it was cancelled");
  EXPECT_EQ(what_in({interrupt}), "the first error: KeyboardInterrupt (a.py:1)");
}

TEST(Explanation, SeesTheErrorOfALaterStep) {
  const std::string ended = kCancelled + "Traceback (most recent call last):\nKeyboardInterrupt\n" +
                            "srun: error: node1: task 0: Terminated\n" + kCancelled + kKilled;
  const std::string later = "epoch 1\n" + kTraceback;
  const std::string error = "rank 3 failed: ValueError: bad sample 17 (train.py:88)";
  EXPECT_EQ(what_in({ended + later}), error);
  EXPECT_EQ(what_in({ended + later + kTimeLimit}),
            error + "; later the job reached its time limit");
  EXPECT_EQ(what_in({kCancelled + later}), "it was cancelled") << "nothing says that it was over";
  const std::string told =
      "ddp: watch: rank 1 (node2) failed after SLURM had told it to end: KeyError: 'lr'\n";
  const std::string second = "ddp: watch: rank 3 failed: ValueError: bad sample 17, exit code 1\n";
  EXPECT_EQ(what_in({kCancelled + told + kKilled + "x\n" + second}),
            "rank 3 failed: ValueError: bad sample 17, exit code 1");
  EXPECT_EQ(what_in({kCancelled + kKilled + later + "srun: error: node2: tasks 0-1: Exited\n"}),
            "it was cancelled")
      << "task 0 of the first step was not over yet";
  EXPECT_EQ(what_in({kCancelled + kKilled + "ddp: 2 ranks on 2 nodes\n" + kTraceback +
                     "srun: error: node2: tasks 0-1: Exited with exit code 1\n"}),
            error);
  const std::string two = kCancelled + "srun: error: node1: tasks 0,2-3: Terminated\n";
  EXPECT_EQ(what_in({two + later + "srun: error: node1: task 3: Exited\n"}), error);
  EXPECT_EQ(what_in({two + later + "srun: error: node1: task 4: Exited\n"}), "it was cancelled");
  EXPECT_EQ(what_in({kTimeLimit + kKilled + later}), "the job reached its time limit");
  const std::string first = "srun: error: node1: task 0: Terminated\n";
  EXPECT_EQ(what_in({kCancelled + first + "srun: Terminating StepId=7.0\n" + kKilled}),
            "it was cancelled");
  EXPECT_EQ(what_in({ended + "KeyboardInterrupt\n"}), "it was cancelled")
      << "the answer of another node";
  std::string job = kCancelled;
  job.replace(job.find("STEP 7.0"), 8, "JOB 7");
  EXPECT_EQ(what_in({job + kKilled + later}), "it was cancelled") << "then no step comes later";
  EXPECT_EQ(what_in({ended + "ddp: watch: rank 1 (node2) failed: KeyError: 'lr', exit code 1\n"}),
            "rank 1 (node2) failed: KeyError: 'lr', exit code 1");
  EXPECT_EQ(what_in({ended + "x\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.1.\n"}),
            "the kernel killed processes for lack of memory");
}

TEST(Explanation, PutsTheEndBeforeTheFailureOfARankThatWasToldToEnd) {
  const std::string told =
      "ddp: watch: rank 1 (node2) failed after SLURM had told it to end: OSError: no space left, "
      "exit code 1\n";
  EXPECT_EQ(what_in({kTimeLimit + told}),
            "the job reached its time limit; then rank 1 (node2) failed after SLURM had told it to "
            "end: OSError: no space left, exit code 1");
  EXPECT_EQ(what_in({told + kTimeLimit}).find("the job reached its time limit; then rank 1"), 0);
  EXPECT_NE(remedy_in(kTimeLimit + told).find("--time"), std::string::npos);
  const JobRecord preempted = in_state("PREEMPTED");
  EXPECT_EQ(what_in({told}, &preempted).find("the job was preempted; then rank 1"), 0);
  EXPECT_EQ(what_in({told}).find("rank 1 (node2) failed after"), 0);
}

TEST(Explanation, IsWhatTheWatchSaidBeforeItEndedTheStep) {
  const std::string failed = "ddp: watch: rank 2 (node2) ended with exit code 3; ending the step\n";
  EXPECT_EQ(what_in({failed + kKilled}), "rank 2 (node2) ended with exit code 3");
  EXPECT_EQ(
      what_in({"ddp: watch: rank 2 (node2) was killed by signal 9 (SIGKILL); ending the other "
               "ranks of this node\n"}),
      "rank 2 (node2) was killed by signal 9 (SIGKILL)");
  const std::string stall =
      "ddp: watch: no rank has made progress for 10 min (processor, files, TCP): all wait for a "
      "timer (sleep); ending the step\n";
  EXPECT_EQ(what_in({stall + kKilled}),
            "no rank has made progress for 10 min (processor, files, TCP): all wait for a timer "
            "(sleep)");
  EXPECT_EQ(remedy_in(stall + kKilled), "");
  const std::string unknown =
      "ddp: watch: a rank lost its connection to another one 10 s ago, and none says why; ending "
      "the step\n";
  EXPECT_EQ(what_in({unknown + kTraceback}),
            "rank 3 failed: ValueError: bad sample 17 (train.py:88)");
}

TEST(Explanation, SaysThatTheRanksHungBeforeTheEnd) {
  const std::string stall =
      "0: ddp: watch: no rank has made progress for 60 s (processor, files, TCP): all wait for "
      "another thread (futex); the step still runs\n";
  const std::string stop = "ddp: watch: rank 1 has been stopped for 5 min; to continue, run x\n";
  const std::string again = "ddp: watch: the ranks make progress again, after 75 s\n";
  EXPECT_EQ(what_in({stall + stop + kTimeLimit}),
            "the job reached its time limit; before, rank 1 has been stopped for 5 min; to "
            "continue, run x");
  EXPECT_EQ(what_in({stall + kCancelled + kKilled}),
            "it was cancelled; before, no rank has made progress for 60 s (processor, files, TCP): "
            "all wait for another thread (futex)");
  EXPECT_EQ(remedy_in(stall + kTimeLimit), "") << "more time would not help";
  EXPECT_EQ(what_in({stall + again + kTimeLimit}), "the job reached its time limit");
  EXPECT_EQ(what_in({stall}), "nothing") << "it may still run";
  const std::string notes =
      "ddp: watch: no rank has made progress for 60 s (processor, files, TCP); rank 1 has failed; "
      "rank 0 has ended with 0; the step still runs\n";
  EXPECT_EQ(what_in({notes + kTraceback}),
            "rank 3 failed: ValueError: bad sample 17 (train.py:88)");
}

TEST(Explanation, TellsATaskThatEndedFirstFromThoseThatSlurmEnded) {
  EXPECT_EQ(what_in({kKilled + kCancelled}),
            "the first task that ended: node2: task 1: Killed; later it was cancelled");
  EXPECT_EQ(what_in({"srun: error: node2: tasks 2-3: Killed\n"}),
            "the first task that ended: node2: tasks 2-3: Killed");
  EXPECT_EQ(what_in({kCancelled + kKilled}), "it was cancelled");
  EXPECT_EQ(what_in({kKilled}), "the first task that ended: node2: task 1: Killed");
  EXPECT_EQ(what_in({kEcho + kKilled}), "the first task that ended: node2: task 1: Killed");
}

TEST(Explanation, ReadsTheLinesOfNewerSlurm) {
  const std::string start = "[2026-07-05T00:02:38.032] error: ";
  const std::string step = start + "*** STEP 7.0 ON node1 CANCELLED AT 2026-07-05T00:02:38 ";
  EXPECT_EQ(what_in({kEcho + step + "DUE TO TIME LIMIT ***\n"}), "the job reached its time limit");
  EXPECT_EQ(what_in({start + "Detected 1 oom_kill event in StepId=7.0. Some of the step tasks\n"}),
            "the kernel killed processes for lack of memory");
  EXPECT_EQ(what_in({kKilled + step + "DUE TO TASK FAILURE ***\n"}),
            "the first task that ended: node2: task 1: Killed")
      << "srun --kill-on-bad-exit";
  EXPECT_EQ(what_in({start + "it was CANCELLED AT noon\n"}), "nothing") << "the program's own";
}

TEST(Explanation, ReadsTheNextStartOfARequeuedJob) {
  const std::string requeue =
      "slurmstepd: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-30T14:00:00 DUE TO JOB REQUEUE "
      "***\n";
  EXPECT_EQ(what_in({requeue + kKilled + "epoch 1\n" + kTraceback}),
            "rank 3 failed: ValueError: bad sample 17 (train.py:88)");
  EXPECT_EQ(what_in({requeue}), "the job was requeued");
}

TEST(Explanation, FindsTheFirstTaskBehindAProgressBar) {
  EXPECT_EQ(what_in({"50%|### | 1/2" + kKilled + "srun: error: node1: task 0: Terminated\n"}),
            "the first task that ended: node2: task 1: Killed");
}

TEST(Explanation, PutsALostNodeAndLackOfMemoryBeforeTheirEffects) {
  const JobRecord node = in_state("NODE_FAIL");
  EXPECT_EQ(what_in({kTraceback}, &node), "a node of the job failed, one of node[1-2]");
  const JobRecord memory = in_state("OUT_OF_MEMORY");
  EXPECT_EQ(what_in({kTraceback}, &memory), "the kernel killed processes for lack of memory");
  EXPECT_EQ(what_in({"slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n" + kTraceback}),
            "the kernel killed processes for lack of memory");
}

TEST(Explanation, SaysThatThereAreOnlyEchoesOrNothing) {
  EXPECT_EQ(what_in({kEcho}).find("only echoes of a failure elsewhere, such as: RuntimeError: "),
            0);
  EXPECT_EQ(what_in({"epoch 3, loss 0.1\n"}), "nothing");
  EXPECT_EQ(what_in({}), "nothing");
  const JobRecord failed = in_state("FAILED");
  EXPECT_EQ(what_in({}, &failed), "nothing");
}

TEST(Explanation, HasARemedyForEachCauseThatHasOne) {
  const JobRecord preempted = in_state("PREEMPTED");
  EXPECT_NE(remedy_in("", &preempted).find("--requeue"), std::string::npos);
  EXPECT_NE(remedy_in(kTimeLimit).find("--time"), std::string::npos);
  EXPECT_NE(remedy_in("MemoryError\n").find("--mem"), std::string::npos);
  EXPECT_NE(remedy_in("CUDA out of memory. Tried to allocate\n").find("batch"), std::string::npos);
  EXPECT_NE(remedy_in("CUDA error: an illegal memory access\n").find("BLOCKING"),
            std::string::npos);
  EXPECT_NE(remedy_in("Segmentation fault\n").find("FAULTHANDLER"), std::string::npos);
  EXPECT_NE(
      remedy_in("NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n").find("--exclude"),
      std::string::npos);
  EXPECT_NE(remedy_in("Watchdog caught collective operation timeout\n").find("did not come"),
            std::string::npos);
  EXPECT_EQ(remedy_in(kTraceback), "");
  EXPECT_EQ(remedy_in("ddp: watch: rank 0 (n1) was killed by the kernel for lack of memory; ask "
                      "for more with --mem, or use fewer loader workers\n"),
            "")
      << "the line has it";
}

}  // namespace
}  // namespace ddp::post_mortem
