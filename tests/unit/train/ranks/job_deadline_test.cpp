// SPDX-License-Identifier: Apache-2.0
// The time limit of the job according to squeue. Here squeue is a fake, a script in PATH;
// tests/cluster/preemption.bats checks the output of the real one.
#include "ddp_runtime/train/ranks/job_deadline.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace ddp::train {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(TimeLeft, ParsesTheOutputOfSqueue) {
  const auto seconds_of = [](const char* text) {
    const auto left = parse_time_left(text);
    return left ? left->count() : -1;
  };
  EXPECT_EQ(seconds_of("0:59\n"), 59);
  EXPECT_EQ(seconds_of("12:30"), 750);
  EXPECT_EQ(seconds_of("1:00:00"), 3600);
  EXPECT_EQ(seconds_of("2-03:00:01 "), 2 * 86400 + 3 * 3600 + 1);
  for (const char* none : {"", "UNLIMITED", "NOT_SET", "INVALID", "-1:00", "1:2:3:4", "1-", "1:x",
                           "99999999999999999999", "slurm_load_jobs error"}) {
    EXPECT_EQ(seconds_of(none), -1) << none;
  }
}

TEST(TimeLeft, BelongsToTheJobNotToItsArray) {
  const auto left = [](std::string_view lines) { return parse_time_left_of("17", lines); };
  EXPECT_EQ(left("17 1:00\n"), seconds(60));
  // Tasks of one array: the first is still pending and has all of its time left.
  EXPECT_EQ(left("19 1-00:00:00\n18 2:00:00\n17 1:00\n"), seconds(60));
  EXPECT_EQ(left("170 5:00\n17 1:00"), seconds(60)) << "170 is another job";
  EXPECT_EQ(left("17  1:00\n"), seconds(60));
  for (const char* none :
       {"", "\n", "17", "17 ", "17\n", "18 1:00\n", "17 UNLIMITED\n", "171:00\n"}) {
    EXPECT_EQ(left(none), std::nullopt) << none;
  }
}

// Sets the variable to another value, or unsets it, for the lifetime of the object.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class FakeSqueue : public testing::Test {
 protected:
  FakeSqueue() {
    std::string directory = (std::filesystem::temp_directory_path() / "squeue.XXXXXX").string();
    directory_ = ::mkdtemp(directory.data());
  }
  ~FakeSqueue() override { std::filesystem::remove_all(directory_); }

  // Returns the time left for the job if squeue is this script.
  std::optional<Deadline::duration> left_by(const std::string& script, const char* job = "17") {
    const auto file = directory_ / "squeue";
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    ::chmod(file.c_str(), 0755);
    const Environment path("PATH", (directory_.string() + ":" + std::getenv("PATH")).c_str());
    const Environment id("SLURM_JOB_ID", job);
    const auto before = std::chrono::steady_clock::now();
    const auto [deadline, problem] = job_end();
    problem_ = problem;
    return deadline ? std::optional(*deadline - before) : std::nullopt;
  }

  std::filesystem::path directory_;
  std::string problem_;  // of the latest answer
};

TEST_F(FakeSqueue, IsQueriedForThisJob) {
  const auto left = left_by(R"([ "$*" = "-h -j 17 -o %A %L" ] && echo "17 2:00:00")");
  ASSERT_TRUE(left);
  EXPECT_GE(*left, hours(2));
}

TEST_F(FakeSqueue, IsReadToTheEndForAWholeArray) {
  const auto left = left_by(
      "i=18; while [ $i -lt 3018 ]; do echo \"$i 9-00:00:00\"; i=$((i + 1)); done; echo '17 "
      "30:00'");
  ASSERT_TRUE(left);
  EXPECT_GE(*left, minutes(30));
  EXPECT_LT(*left, hours(24));
}

TEST_F(FakeSqueue, WithoutAnAnswerTheEndAsOfTheStartCounts) {
  const auto in_an_hour = std::to_string(std::time(nullptr) + 3600);
  const Environment end("SLURM_JOB_END_TIME", in_an_hour.c_str());
  const auto left = left_by("exit 1");
  ASSERT_TRUE(left);
  EXPECT_GT(*left, minutes(50));
  EXPECT_LE(*left, minutes(61));
  EXPECT_EQ(*left_by("echo '17 2:00:00'") > minutes(110), true) << "squeue knows a new limit";
  EXPECT_FALSE(left_by("echo '17 UNLIMITED'"));
  for (const char* bad : {"", "soon", "-5", "12x", "99999999999999999999"}) {
    const Environment wrong("SLURM_JOB_END_TIME", bad);
    EXPECT_FALSE(left_by("exit 1")) << bad;
    EXPECT_TRUE(problem_.find("the time limit of job 17 is unknown") == 0) << problem_;
    EXPECT_NE(problem_.find("SLURM_JOB_END_TIME is not a time in seconds"), std::string::npos);
  }
}

TEST_F(FakeSqueue, NoAnswerMeansNoLimit) {
  const Environment end("SLURM_JOB_END_TIME", nullptr);
  EXPECT_FALSE(left_by("echo '17 UNLIMITED'"));
  EXPECT_EQ(problem_, "");
  EXPECT_FALSE(left_by("exit 1"));
  EXPECT_FALSE(left_by("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"));
  EXPECT_FALSE(left_by("kill -9 $$"));
  EXPECT_NE(problem_.find("SLURM_JOB_END_TIME is not set"), std::string::npos) << problem_;
}

TEST_F(FakeSqueue, IsNotRunOutsideAJobOrForAnInvalidJobId) {
  const std::string tell = "touch '" + (directory_ / "asked").string() + "'; echo '17 1:00'";
  EXPECT_FALSE(left_by(tell, nullptr));
  EXPECT_FALSE(left_by(tell, ""));
  EXPECT_FALSE(left_by(tell, "17; rm -rf x"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "asked"));
  EXPECT_TRUE(left_by(tell));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "asked"));
}

}  // namespace
}  // namespace ddp::train
