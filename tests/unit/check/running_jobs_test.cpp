// SPDX-License-Identifier: Apache-2.0
// Tests which processes mean that a job runs on the node, with fake /proc trees.
#include "ddp_runtime/check/node/running_jobs.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/check/environment_of.h"
#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::check {
namespace {

std::string process(int pid, const std::string& name, int user, const std::string& title) {
  const std::string entry = "proc/" + std::to_string(pid) + "/";
  const std::string uid = std::to_string(user);
  return entry + "comm = " + name + "\n" + entry + "cmdline = " + title + "\n" + entry +
         "status = Name:\t" + name + "\\nUid:\t" + uid + "\t" + uid + "\t0\t0\n";
}

bool runs(const std::string& tree, const Variables& variables = {}) {
  const test::FakeSysfs fake("proc/self/ns/uts -> uts:[7]\nproc/meminfo = MemTotal: 1 kB\n" + tree);
  return a_job_runs(fake.root(), environment_of(variables));
}

const std::string kStep = process(4711, "slurmstepd", 0, "slurmstepd: [12.extern]");

TEST(RunningJobs, AStepOfAJobIsFoundAmongTheProcesses) {
  EXPECT_FALSE(runs(""));
  EXPECT_FALSE(runs(process(1, "systemd", 0, "/sbin/init")));
  EXPECT_TRUE(runs(process(1, "systemd", 0, "/sbin/init") + kStep));
  EXPECT_FALSE(a_job_runs("/nonexistent", environment_of({})));
}

TEST(RunningJobs, OnlyTheStepsOfSlurmCount) {
  EXPECT_FALSE(runs(process(5, "slurmstepd", 1000, "slurmstepd: [12.0]"))) << "named by a user";
  EXPECT_FALSE(runs(process(5, "slurmstepd", 0, "/usr/sbin/slurmstepd infinity"))) << "no step";
  EXPECT_FALSE(runs(process(5, "python3", 0, "slurmstepd: [12.0]")));
  EXPECT_FALSE(runs(process(5, "slurmd", 0, "/usr/sbin/slurmd -D")));
  EXPECT_FALSE(runs(kStep + "proc/4711/ns/uts -> uts:[8]")) << "of another node on this machine";
  EXPECT_TRUE(runs(kStep + "proc/4711/ns/uts -> uts:[7]"));
  EXPECT_TRUE(runs(process(5, "slurmstepd", 0, "slurmstepd: [1.ext"))) << "cut off";
}

TEST(RunningJobs, AProcessOfAJobDoesNotNeedToSearch) {
  EXPECT_TRUE(runs("", {{"SLURM_JOB_ID", "12"}}));
  EXPECT_TRUE(runs("", {{"SLURM_JOB_ID", "12"}, {"SLURM_SCRIPT_CONTEXT", "prolog_task"}}));
  EXPECT_FALSE(runs("", {{"SLURM_JOB_ID", ""}}));
}

// With some settings of SLURM, the first step of the job runs the prolog.
TEST(RunningJobs, TheStepThatRunsAPrologOrEpilogDoesNotCount) {
  const std::string child = "proc/self/status = Name:\tddp-check\\nPPid:\t88\n";
  const std::string script = "proc/88/status = Name:\tcheck_prolog\\nPPid:\t4711\n";
  const std::string other = process(4712, "slurmstepd", 0, "slurmstepd: [12.0]");
  for (const char* context : {"prolog_slurmd", "epilog_slurmd"}) {
    const auto around = [context](const std::string& tree) {
      return runs(tree, {{"SLURM_JOB_ID", "12"}, {"SLURM_SCRIPT_CONTEXT", context}});
    };
    EXPECT_FALSE(around(child));
    EXPECT_FALSE(around(child + script + kStep));
    EXPECT_TRUE(around(child + script + kStep + other));
    EXPECT_TRUE(around(child + kStep)) << "of another job";
  }
  EXPECT_TRUE(runs(child + script + kStep)) << "a check in a step whose variables are gone";
}

TEST(RunningJobs, ExcuseLowersTheSeverityAndGivesTheReason) {
  Finding finding{
      .check = "x", .severity = Severity::critical, .evidence = "out of 7 MiB", .action = "x"};
  excuse_for_a_job(finding);
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_EQ(finding.evidence, "out of 7 MiB; a job runs on this node");
  EXPECT_EQ(finding.action, "check again when the job has ended");
}

}  // namespace
}  // namespace ddp::check
