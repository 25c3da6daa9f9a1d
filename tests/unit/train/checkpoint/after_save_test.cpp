// SPDX-License-Identifier: Apache-2.0
// The commands after checkpoints: what they see, and what becomes of commands that fail or hang.
#include "ddp_runtime/train/checkpoint/after_save.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/temporary_directory.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kLong = seconds(60);

class AfterSaveTest : public testing::Test {
 protected:
  fs::path file(const char* name) const { return temporary_.path() / name; }
  std::string text_of(const char* name) const { return test::text_of(file(name)); }
  // Waits for a file that a command makes.
  void await(const char* name) const {
    const auto begin = std::chrono::steady_clock::now();
    while (!fs::exists(file(name))) {
      ASSERT_LT(std::chrono::steady_clock::now() - begin, kLong) << name;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  std::string in_directory(const std::string& command) const {
    return fmt::format("cd '{}' && {}", temporary_.path().string(), command);
  }

  test::TemporaryDirectory temporary_;
  const fs::path log_ = file("log");
};

TEST_F(AfterSaveTest, GetsPathAndStepInItsEnvironment) {
  AfterSave after(in_directory("printf '%s %s' \"$SLURM_DDP_STEP\" \"$SLURM_DDP_CHECKPOINT\" > it"),
                  kLong, log_);
  after.run("/ck/step-00000042", 42);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_EQ(text_of("it"), "42 /ck/step-00000042");
  EXPECT_THAT(after.take_messages(), IsEmpty());
  EXPECT_EQ(text_of("log"), "step 42: exit status 0\n");
  EXPECT_FALSE(after.in_use(42));
  EXPECT_FALSE(after.unfinished());
}

TEST_F(AfterSaveTest, PathIsNeverPartOfTheCommand) {
  const auto path = "/a'; touch " + file("injected").string() + "; $(touch " +
                    file("injected").string() + ") #/step-00000001";
  AfterSave after(in_directory("printf %s \"$SLURM_DDP_CHECKPOINT\" > it"), kLong, log_);
  after.run(path, 1);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_EQ(text_of("it"), path);
  EXPECT_FALSE(fs::exists(file("injected")));
}

TEST_F(AfterSaveTest, ReportsAFailureInOneLine) {
  AfterSave after("echo first; echo 'no such bucket\x1b[31m' >&2; exit 3", kLong, log_);
  after.run("/ck/step-00000007", 7);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_THAT(after.take_messages(),
              ElementsAre("the command after the checkpoint of step 7 failed: exit status 3: no "
                          "such bucket?[31m; output: " +
                          log_.string()));
  EXPECT_THAT(after.take_messages(), IsEmpty()) << "each message once";
  EXPECT_THAT(text_of("log"), HasSubstr("step 7: exit status 3\nfirst\nno such bucket"));
  after.run("/ck/step-00000008", 8);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_THAT(after.take_messages(), ElementsAre(HasSubstr("step 8 failed")));
  EXPECT_THAT(text_of("log"), HasSubstr("step 7: ")) << "the log is appended to";
}

TEST_F(AfterSaveTest, ReportsAMissingProgramAndASignal) {
  AfterSave missing("/no/such/program", kLong, log_);
  missing.run("/ck/step-00000001", 1);
  ASSERT_TRUE(missing.wait(kLong));
  EXPECT_THAT(missing.take_messages(), ElementsAre(HasSubstr("failed: exit status 127: ")));
  AfterSave killed("kill -9 $$", kLong, log_);
  killed.run("/ck/step-00000001", 1);
  ASSERT_TRUE(killed.wait(kLong));
  EXPECT_THAT(killed.take_messages(), ElementsAre(HasSubstr("failed: killed by a signal; ")));
}

TEST_F(AfterSaveTest, KillsACommandAtItsLimit) {
  AfterSave after("sleep 1000", std::chrono::milliseconds(200), log_);
  after.run("/ck/step-00000001", 1);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_THAT(after.take_messages(), ElementsAre(HasSubstr("step 1 failed: killed after ")));
}

// A command that closes its output is still running.
TEST_F(AfterSaveTest, KillsACommandWithoutOutputAtItsLimit) {
  AfterSave after("exec >&- 2>&-; sleep 1000", std::chrono::milliseconds(300), log_);
  after.run("/ck/step-00000001", 1);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_THAT(after.take_messages(), ElementsAre(HasSubstr("step 1 failed: killed after ")));
}

TEST_F(AfterSaveTest, OnlyTheNewestCheckpointWaits) {
  AfterSave after(in_directory("echo $SLURM_DDP_STEP >> steps; touch began; "
                               "until [ -e go ]; do sleep 0.01; done"),
                  kLong, log_);
  after.run("/ck/step-00000001", 1);
  await("began");
  for (const std::uint64_t step : {2U, 3U, 4U}) after.run("/ck/step", step);
  EXPECT_TRUE(after.in_use(1));
  EXPECT_FALSE(after.in_use(2));
  EXPECT_FALSE(after.in_use(3));
  EXPECT_TRUE(after.in_use(4));
  EXPECT_EQ(after.unfinished(), 4U);
  EXPECT_FALSE(after.wait(std::chrono::milliseconds(1)));
  EXPECT_THAT(after.take_messages(), ElementsAre(HasSubstr("step 2 was left out")))
      << "said once, not for each step";
  test::write(file("go"), "");
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_EQ(text_of("steps"), "1\n4\n");
  EXPECT_FALSE(after.in_use(4));
}

TEST_F(AfterSaveTest, StopKillsTheRunningCommandAndDropsTheWaitingOne) {
  AfterSave after(in_directory("touch began-$SLURM_DDP_STEP; sleep 1000"), kLong, log_);
  after.run("/ck/step", 1);
  await("began-1");
  after.run("/ck/step", 2);
  after.stop();
  ASSERT_TRUE(after.wait(kLong));
  after.run("/ck/step", 3);
  EXPECT_FALSE(after.unfinished());
  EXPECT_FALSE(fs::exists(file("began-2")));
  EXPECT_THAT(after.take_messages(), IsEmpty());
}

TEST_F(AfterSaveTest, DestructorKillsTheCommandAndItsChildren) {
  {
    AfterSave after(in_directory("(echo $$ > pid; mv pid began; sleep 1000) | cat"), kLong, log_);
    after.run("/ck/step", 1);
    await("began");
  }
  const auto pid = std::stoi(text_of("began"));
  const auto begin = std::chrono::steady_clock::now();
  while (kill(pid, 0) == 0 && std::chrono::steady_clock::now() - begin < kLong) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(AfterSaveTest, SaysOnceThatTheLogCannotBeWritten) {
  AfterSave after("true", kLong, file("no/such/log"));
  after.run("/ck/step", 1);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_THAT(after.take_messages(), ElementsAre(HasSubstr("cannot be stored in")));
  after.run("/ck/step", 2);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_THAT(after.take_messages(), IsEmpty());
}

TEST_F(AfterSaveTest, LinkInPlaceOfTheLogIsNotFollowed) {
  test::write(file("precious"), "x");
  fs::create_symlink(file("precious"), log_);
  AfterSave after("echo hello", kLong, log_);
  after.run("/ck/step", 1);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_EQ(text_of("precious"), "x");
  EXPECT_THAT(after.take_messages(), ElementsAre(HasSubstr("cannot be stored in")));
}

TEST_F(AfterSaveTest, LargeOutputIsCut) {
  AfterSave after("head -c 1000000 /dev/zero | tr '\\0' x; echo end", kLong, log_);
  after.run("/ck/step", 1);
  ASSERT_TRUE(after.wait(kLong));
  EXPECT_LT(fs::file_size(log_), 100'000U);
  EXPECT_GT(fs::file_size(log_), 50'000U);
}

}  // namespace
}  // namespace ddp::train
