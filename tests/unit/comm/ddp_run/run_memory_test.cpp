// SPDX-License-Identifier: Apache-2.0
// The directory of a run in a node's memory, here below a temporary directory.
#include "ddp_runtime/comm/ddp_run/run_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::comm {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kRun(32, 'a');
const std::string kOther(32, 'b');

class RunMemoryTest : public testing::Test {
 protected:
  void SetUp() override { setenv(kRunMemoryVariable, base_.c_str(), 1); }
  void TearDown() override {
    unsetenv(kRunMemoryVariable);
    unsetenv(kRunIdVariable);
  }

  // As if it had not been used for a long time.
  void age(const std::string& run) const {
    fs::last_write_time(all_ / run / "in-use", fs::file_time_type::clock::now() - 2 * kStaleAfter);
  }
  static std::string refusal(const std::string& run) {
    return error_of([&] { const RunMemory memory(run); });
  }

  const ddp::test::TemporaryDirectory directory_;
  const fs::path base_ = directory_.path();
  const fs::path all_ = base_ / ("slurm-ddp-memory-" + std::to_string(geteuid()));
};

TEST_F(RunMemoryTest, IsOfThisUserAlone) {
  const RunMemory memory(kRun);
  EXPECT_EQ(memory.path(), all_ / kRun);
  for (const auto& path : {all_, memory.path()}) {
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U);
  }
}

TEST_F(RunMemoryTest, RefusesWhatOthersCouldHavePlanted) {
  fs::create_directory(base_ / "elsewhere");
  fs::permissions(base_ / "elsewhere", fs::perms::owner_all);
  fs::create_directory_symlink(base_ / "elsewhere", all_);
  EXPECT_THAT(refusal(kRun), HasSubstr("is not a directory that only this user can access"));
  remove_run_memory(kRun);
  remove_stale_run_memory();
  EXPECT_TRUE(fs::is_empty(base_ / "elsewhere"));
  fs::remove(all_);
  fs::create_directory(all_);
  fs::permissions(all_, fs::perms::all);
  EXPECT_THAT(refusal(kRun), HasSubstr("is not a directory that only this user can access"));
  fs::permissions(all_, fs::perms::owner_all);
  fs::create_directory_symlink(base_ / "elsewhere", all_ / kRun);
  EXPECT_THAT(refusal(kRun), HasSubstr("is not a directory that only this user can access"));
  EXPECT_THAT(refusal("../x"), HasSubstr("is not the id of a run"));
}

TEST_F(RunMemoryTest, IsRemovedWithAllThatIsInIt) {
  {
    const RunMemory memory(kRun);
    fs::create_directories(memory.path() / "copies" / "step");
    std::ofstream(base_ / "kept") << "kept";
    fs::create_symlink(base_ / "kept", memory.path() / "copies" / "link");
    remove_run_memory(kRun);
    EXPECT_TRUE(fs::exists(memory.path() / "copies")) << "it is in use";
  }
  remove_run_memory(kRun);
  EXPECT_FALSE(fs::exists(all_));
  EXPECT_TRUE(fs::exists(base_ / "kept"));
}

TEST_F(RunMemoryTest, OfAnotherRunStays) {
  { const RunMemory memory(kRun); }
  { const RunMemory other(kOther); }
  remove_run_memory(kRun);
  EXPECT_FALSE(fs::exists(all_ / kRun));
  EXPECT_TRUE(fs::exists(all_ / kOther));
}

TEST_F(RunMemoryTest, IsStaleIfItIsNotUsedForALongTime) {
  const std::string young(32, 'c');
  const std::string touched(32, 'd');
  const RunMemory used(kRun);
  for (const auto& run : {kOther, young, touched}) {
    const RunMemory memory(run);
    fs::create_directory(memory.path() / "copies");
  }
  for (const auto& run : {kRun, kOther, touched}) age(run);
  touch_run_memory(touched);
  fs::create_directory(all_ / "something-else");
  remove_stale_run_memory();
  EXPECT_TRUE(fs::exists(all_ / kRun)) << "it is in use";
  EXPECT_FALSE(fs::exists(all_ / kOther));
  EXPECT_TRUE(fs::exists(all_ / young));
  EXPECT_TRUE(fs::exists(all_ / touched));
  EXPECT_TRUE(fs::exists(all_ / "something-else"));
}

TEST_F(RunMemoryTest, IsRemovedAfterAUseThatLeftNothing) {
  { const RunMemory memory(kRun); }
  touch_run_memory(kRun);
  EXPECT_FALSE(fs::exists(all_));
  touch_run_memory(kRun);
  {
    const RunMemory memory(kRun);
    touch_run_memory(kRun);
    EXPECT_TRUE(fs::exists(all_ / kRun)) << "it is in use";
  }
}

TEST_F(RunMemoryTest, IsNamedByTheEnvironment) {
  EXPECT_FALSE(run_id());
  setenv(kRunIdVariable, kRun.c_str(), 1);
  EXPECT_EQ(run_id(), kRun);
  for (const auto* wrong : {"", "a", "../../../../../../../../etc/passwd"}) {
    setenv(kRunIdVariable, wrong, 1);
    EXPECT_FALSE(run_id()) << wrong;
  }
}

TEST_F(RunMemoryTest, IsSavedOnlyIfDdpRunSaysSo) {
  setenv(kRunSaveVariable, "1", 1);
  EXPECT_FALSE(started_to_save()) << "without ddp-run";
  setenv(kRunIdVariable, kRun.c_str(), 1);
  EXPECT_TRUE(started_to_save());
  setenv(kRunSaveVariable, "0", 1);
  EXPECT_FALSE(started_to_save());
  unsetenv(kRunSaveVariable);
  EXPECT_FALSE(started_to_save());
}

}  // namespace
}  // namespace ddp::comm
