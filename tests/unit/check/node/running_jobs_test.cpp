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

// A check in a job, or in its prolog or epilog, is to find what the job will lack.
TEST(RunningJobs, TheJobOfTheCheckItselfDoesNotCount) {
  const auto runs_beside = [](const char* job, const std::string& title) {
    return runs(process(5, "slurmstepd", 0, title), {{"SLURM_JOB_ID", job}});
  };
  EXPECT_FALSE(runs_beside("12", "slurmstepd: [12.0]"));
  EXPECT_FALSE(runs_beside("12", "slurmstepd: [12.extern]"));
  EXPECT_FALSE(runs_beside("12", "slurmstepd: [12+1.0]"));
  EXPECT_TRUE(runs_beside("12", "slurmstepd: [1.0]"));
  EXPECT_TRUE(runs_beside("12", "slurmstepd: [123.0]"));
  EXPECT_TRUE(runs_beside("1", "slurmstepd: [12.0]"));
  EXPECT_FALSE(runs_beside("1234567", "slurmstepd: [12345")) << "the kernel cut it off";
  EXPECT_TRUE(runs_beside("7234567", "slurmstepd: [12345"));
  EXPECT_TRUE(runs_beside("", "slurmstepd: [12345"));
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
