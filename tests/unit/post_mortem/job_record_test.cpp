// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/post_mortem/job_record.h"

#include <gtest/gtest.h>

namespace ddp::post_mortem {
namespace {

TEST(JobRecord, KnowsANumberFromAFile) {
  for (const auto* number : {"1", "1234", "1234_5"}) EXPECT_TRUE(is_job_number(number)) << number;
  for (const auto* other : {"", "slurm-1.out", "12.0", "1234_", "_5", "12a", "-1"}) {
    EXPECT_FALSE(is_job_number(other)) << other;
  }
}

TEST(JobRecord, IsReadFromScontrol) {
  const auto job = read_scontrol_job(
      "JobId=7 JobName=my job UserId=ada(1000) JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15 "
      "NodeList=node[1-2] Command=/home/ada/my scripts/train.sh WorkDir=/home/ada/my runs "
      "StdErr=/home/ada/my runs/7.err StdIn=/dev/null StdOut=/home/ada/my runs/7.out Power=\n");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state, "TIMEOUT");
  EXPECT_EQ(job->nodes, "node[1-2]");
  EXPECT_EQ(job->directory, "/home/ada/my runs");
  EXPECT_EQ(job->output, "/home/ada/my runs/7.out");
  EXPECT_EQ(job->error_output, "/home/ada/my runs/7.err");
}

TEST(JobRecord, OfAJobThatNeverRanHasNoNodes) {
  const auto job = read_scontrol_job("JobId=7 JobState=CANCELLED NodeList=(null) WorkDir=/x\n");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->nodes, "");
  EXPECT_EQ(job->output, "");
}

TEST(JobRecord, IsReadFromSacct) {
  const auto job = read_sacct_job("CANCELLED by 1000|node1|/home/ada\n");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state, "CANCELLED");
  EXPECT_EQ(job->nodes, "node1");
  EXPECT_EQ(job->directory, "/home/ada");
  EXPECT_EQ(read_sacct_job("FAILED|None assigned|/x")->nodes, "");
}

TEST(JobRecord, IsNotReadFromOtherTexts) {
  EXPECT_FALSE(read_scontrol_job("slurm_load_jobs error: Invalid job id specified\n"));
  EXPECT_FALSE(read_scontrol_job("JobId=7 JobName=x\n"));
  EXPECT_FALSE(read_scontrol_job(""));
  EXPECT_FALSE(read_sacct_job(""));
  EXPECT_FALSE(read_sacct_job("FAILED|node1"));
  EXPECT_FALSE(read_sacct_job("|node1|/x"));
}

}  // namespace
}  // namespace ddp::post_mortem
