// SPDX-License-Identifier: Apache-2.0
// The checkpoints that are deleted or kept, and interrupted deletions.

#include "hdf5_ckpt/directory/retention.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "hdf5_ckpt/core/error.h"
#include "tests/unit/hdf5_ckpt/faulty_ops.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::Fault;
using test::FaultyOps;
using test::Names;
using test::names_in;
using test::save_arrays;
using test::small_model;
using test::Steps;
using test::steps_in;
using test::TempDirectory;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAreArray;

const OwnerTag kSaver = {"test", 1, "host", 100};

class RetentionTest : public testing::Test {
 protected:
  RetentionTest() {
    for (const std::uint64_t step : {1, 2, 3, 4, 5}) test::save_step(root_, step);
  }

  RetentionReport keep(std::size_t n) { return Retention(root_, kSaver).apply({n}); }

  void save_permanent(std::uint64_t step) {
    CheckpointInfo info = test::test_info();
    info.permanent = true;
    save_arrays(root_, step, small_model(step), info);
  }

  // Counts the pieces of checkpoints that are read.
  ReadOptions counting() {
    return {1, [this](std::uint64_t, std::uint64_t) { ++pieces_read_; }};
  }

  const TempDirectory root_{test::On::memory};
  std::uint64_t pieces_read_ = 0;
};

TEST_F(RetentionTest, KeepsTheNewest) {
  const RetentionReport report = keep(2);
  EXPECT_EQ(report.removed, (Steps{1, 2, 3}));
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_EQ(names_in(root_), (Names{"latest", "step-00000004", "step-00000005"}));
  EXPECT_THAT(keep(2).removed, IsEmpty());
}

TEST_F(RetentionTest, KeepsAllIfThereAreFew) {
  EXPECT_THAT(keep(5).removed, IsEmpty());
  EXPECT_THAT(keep(100).removed, IsEmpty());
  EXPECT_EQ(steps_in(root_), (Steps{5, 4, 3, 2, 1}));
}

TEST_F(RetentionTest, NeverDeletesEverything) {
  EXPECT_THAT(error_of([&] { keep(0); }), HasSubstr("at least 1"));
  EXPECT_EQ(steps_in(root_), (Steps{5, 4, 3, 2, 1}));
}

TEST_F(RetentionTest, DamagedCheckpointsAreNeitherCountedNorDeleted) {
  test::damage(root_ / "step-00000005");
  test::damage(root_ / "step-00000002");
  fs::remove(root_ / "step-00000004/manifest.json");
  const RetentionReport report = keep(1);
  EXPECT_EQ(report.removed, (Steps{1}));
  EXPECT_EQ(steps_in(root_), (Steps{5, 4, 3, 2}));
  ASSERT_EQ(report.notes.size(), 3U);
  EXPECT_THAT(report.notes[0], AllOf(HasSubstr("not counted and not deleted: checkpoint"),
                                     HasSubstr("step-00000005")));
}

TEST_F(RetentionTest, VerifiedCheckpointsAreNotReadAgain) {
  Retention retention(root_, kSaver);
  retention.remember_verified(Checkpoint::open(root_ / "step-00000005"));
  retention.apply({4}, counting());
  const std::uint64_t first = pieces_read_;
  EXPECT_GT(first, 0U);
  retention.apply({4}, counting());
  EXPECT_EQ(pieces_read_, first);
  // A new checkpoint of the same step does not count as verified.
  save_arrays(root_, 5, small_model(50));
  retention.apply({4}, counting());
  EXPECT_GT(pieces_read_, first);
}

TEST_F(RetentionTest, PermanentOnesAreCountedButNeverDeleted) {
  save_permanent(2);
  save_permanent(4);
  EXPECT_EQ(keep(2).removed, (Steps{1, 3}));
  EXPECT_EQ(steps_in(root_), (Steps{5, 4, 2})) << "4 is one of the newest two";
  EXPECT_THAT(keep(1).removed, IsEmpty());
}

// A new process opens all of them once.
TEST_F(RetentionTest, PermanentOnesAreOpenedOnce) {
  save_permanent(2);
  Retention retention(root_, kSaver);
  retention.apply({1});
  EXPECT_EQ(steps_in(root_), (Steps{5, 2}));
  fs::rename(root_ / "step-00000002/manifest.json", root_ / "step-00000002/away");
  EXPECT_THAT(retention.apply({1}).notes, IsEmpty());
  fs::rename(root_ / "step-00000002/away", root_ / "step-00000002/manifest.json");
  // The next checkpoint of that step is another one.
  save_arrays(root_, 2, small_model(2));
  retention.remember_verified(Checkpoint::open(root_ / "step-00000002"));
  EXPECT_EQ(retention.apply({1}).removed, (Steps{2}));
}

TEST_F(RetentionTest, PermanentOneThatIsNotNeededIsNotRead) {
  save_permanent(1);
  Retention retention(root_, kSaver);
  for (const std::uint64_t step : {2, 3, 4, 5})
    retention.remember_verified(Checkpoint::open(root_ / step_directory_name(step)));
  EXPECT_EQ(retention.apply({1}, counting()).removed, (Steps{2, 3, 4}));
  EXPECT_EQ(pieces_read_, 0U);
}

TEST_F(RetentionTest, CheckpointsInUseStayForNow) {
  RetentionPolicy policy{1};
  policy.in_use = [](std::uint64_t step) { return step == 2; };
  EXPECT_EQ(Retention(root_, kSaver).apply(policy).removed, (Steps{1, 3, 4}));
  EXPECT_EQ(steps_in(root_), (Steps{5, 2}));
  EXPECT_EQ(keep(1).removed, (Steps{2}));
}

class AfterARestart : public RetentionTest {
 protected:
  // Returns the steps that apply() reads in a newly started process.
  std::vector<std::uint64_t> read_again() {
    std::vector<std::uint64_t> read;
    for (const Candidate& candidate : CheckpointDirectory(root_).candidates()) {
      const TempDirectory alone(test::On::memory);
      fs::copy(candidate.path, alone / candidate.path.filename().string(),
               fs::copy_options::recursive);
      if (fs::exists(mark_)) fs::copy(mark_, alone / ".verified");
      pieces_read_ = 0;
      Retention retention(alone, kSaver);
      retention.remember_across_restarts();
      retention.apply({1}, counting());
      if (pieces_read_ > 0) read.push_back(candidate.step);
    }
    return read;
  }

  const fs::path mark_ = root_ / ".verified";
};

TEST_F(AfterARestart, VerifiedCheckpointsAreNotReadAgain) {
  EXPECT_EQ(read_again(), (Steps{5, 4, 3, 2, 1}));
  Retention before(root_, kSaver);
  before.remember_across_restarts();
  before.remember_verified(Checkpoint::open(root_ / "step-00000002"));
  before.remember_verified(Checkpoint::open(root_ / "step-00000004"));
  EXPECT_EQ(read_again(), (Steps{5, 3, 1}));
  before.apply({3});
  EXPECT_THAT(read_again(), IsEmpty());
  EXPECT_EQ(names_in(root_),
            (Names{".verified", "latest", "step-00000003", "step-00000004", "step-00000005"}));
}

TEST_F(AfterARestart, NewCheckpointOfTheSameStepIsRead) {
  Retention before(root_, kSaver);
  before.remember_across_restarts();
  before.apply({5});
  save_arrays(root_, 3, small_model(30));
  EXPECT_EQ(read_again(), (Steps{3}));
}

TEST_F(AfterARestart, InvalidMarkIsIgnored) {
  for (const std::string& text : std::vector<std::string>{
           "", "5", "5 zzzzzzzz\n", "-5 00000000\n", "99999999999999999999 00000000\n",
           std::string(70000, '7'), "5 00000000\n4 00000000\n"}) {
    std::ofstream(mark_) << text;
    EXPECT_EQ(read_again(), (Steps{5, 4, 3, 2, 1})) << text.substr(0, 40);
  }
  fs::remove(mark_);
  ASSERT_EQ(::mkfifo(mark_.c_str(), 0600), 0);  // without a writer, opening it would hang
  Retention(root_, kSaver).remember_across_restarts();
  fs::remove(mark_);
  fs::create_directory(mark_);
  Retention retention(root_, kSaver);
  retention.remember_across_restarts();
  EXPECT_EQ(retention.apply({2}).removed, (Steps{1, 2, 3}));
}

// The mark avoids reads before deletions, but does not affect loading.
TEST_F(AfterARestart, LoadingVerifiesDespiteTheMark) {
  Retention before(root_, kSaver);
  before.remember_across_restarts();
  before.apply({5});
  test::damage(root_ / "step-00000005");
  const auto loaded = CheckpointDirectory(root_).newest_verified();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->checkpoint.manifest().step, 4U);
}

TEST_F(AfterARestart, LinkInPlaceOfTheMarkIsReplacedAndNotFollowed) {
  const TempDirectory elsewhere;
  std::ofstream(elsewhere / "precious") << "x";
  fs::create_symlink(elsewhere / "precious", mark_);
  fs::create_symlink(elsewhere / "precious", root_ / (".verified." + kSaver.text()));
  Retention retention(root_, kSaver);
  retention.remember_across_restarts();
  retention.apply({5});
  EXPECT_EQ(test::file_bytes(elsewhere / "precious").size(), 1U);
  EXPECT_FALSE(fs::is_symlink(mark_));
  EXPECT_THAT(read_again(), IsEmpty());
}

TEST_F(RetentionTest, InterruptedDeletionLeavesNoPartialCheckpoint) {
  std::size_t calls = 0;
  for (const Fault fault : {Fault::none, Fault::crash_before, Fault::crash_after, Fault::error,
                            Fault::error_from_here_on})
    for (std::size_t k = 0; k < (fault == Fault::none ? 1 : calls); ++k) {
      const TempDirectory copy(test::On::memory);
      fs::copy(root_, copy, fs::copy_options::recursive);
      FaultyOps ops(fault, k, EIO);
      try {
        Retention(copy, kSaver, ops).apply({2});
      } catch (const test::Crashed&) {
      } catch (const Error& error) {
        ASSERT_THAT(error.what(), HasSubstr("cannot"));
      }
      if (fault == Fault::none) calls = ops.calls().size();
      const std::vector<std::uint64_t> left = steps_in(copy);
      ASSERT_GE(left.size(), 2U);
      for (const std::uint64_t step : left)
        ASSERT_TRUE(
            test::holds(Checkpoint::open(copy / step_directory_name(step)), small_model(step)));
      ASSERT_EQ(left[0], 5U);
      ASSERT_EQ(left[1], 4U);
      remove_leftovers(copy, [](const OwnerTag& owner) { return owner == kSaver; });
      for (const std::string& name : names_in(copy)) ASSERT_FALSE(name.starts_with(".")) << name;
    }
  EXPECT_GE(calls, 15U);
}

TEST_F(RetentionTest, FailedDeletionIsNoted) {
  FaultyOps probe;
  CheckpointDirectory(root_, {}, probe).candidates();
  FaultyOps ops(Fault::error_from_here_on, probe.calls().size(), EACCES);
  const RetentionReport report = Retention(root_, kSaver, ops).apply({4});
  EXPECT_THAT(report.removed, IsEmpty());
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("cannot set aside for deletion")));
}

TEST_F(RetentionTest, LeftoversOfOtherOwnersStay) {
  const std::vector<std::string> dead = {".tmp-step-00000006.test.r0.host.p1",  // earlier restart
                                         ".trash-step-00000001.test.r0.host.p1",
                                         ".latest.test.r0.host.p1"};
  const std::vector<std::string> others = {".tmp-step-00000006.other.r0.host.p1",  // another job
                                           ".tmp-step-00000006.test.r2.host.p1",  // a later restart
                                           ".tmp-step-00000006.test.r1.host.p100",  // this process
                                           ".broken-step-00000006.test.r0.host.p1",
                                           ".tmp-step-00000006"};
  std::vector<std::string> remaining = names_in(root_);
  remaining.insert(remaining.end(), others.begin(), others.end());
  for (const auto* names : {&dead, &others})
    for (const std::string& name : *names)
      ddp::test::write(name.starts_with(".latest") ? root_ / name : root_ / name / "model.h5", "x");
  EXPECT_THAT(remove_leftovers(root_, dead_relatives_of(kSaver)),
              AllOf(SizeIs(3), Each(HasSubstr("removed the leftover"))));
  EXPECT_THAT(names_in(root_), UnorderedElementsAreArray(remaining));
}

TEST_F(RetentionTest, LinkAmongLeftoversIsNotFollowed) {
  const TempDirectory elsewhere;
  std::ofstream(elsewhere / "precious") << "x";
  fs::create_directory_symlink(elsewhere, root_ / ".tmp-step-00000006.test.r0.host.p1");
  EXPECT_EQ(remove_leftovers(root_, dead_relatives_of(kSaver)).size(), 1U);
  EXPECT_FALSE(fs::exists(fs::symlink_status(root_ / ".tmp-step-00000006.test.r0.host.p1")));
  EXPECT_EQ(names_in(elsewhere), (Names{"precious"}));
}

TEST_F(RetentionTest, UnreadableCheckpointIsNeitherDeletedNorSetAside) {
  if (::geteuid() == 0 && ::seteuid(65534) != 0) GTEST_SKIP() << "root can read every file";
  const auto back = [](int*) { static_cast<void>(::seteuid(0)); };
  int unused = 0;
  const std::unique_ptr<int, decltype(back)> as_before(&unused, back);
  const TempDirectory mine(test::On::memory);
  for (const std::uint64_t step : {1, 2, 3}) test::save_step(mine, step);
  fs::permissions(mine / "step-00000003", fs::perms::none);
  const RetentionReport report = Retention(mine, kSaver).apply({1});
  EXPECT_EQ(report.removed, (Steps{1}));
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("not read and not deleted")));
  // A save of that step does not move the unreadable checkpoint away.
  EXPECT_THAT(error_of([&] { test::save_step(mine, 3); }), HasSubstr("Permission denied"));
  // A run does not resume from an older checkpoint.
  SaveOptions options = test::small_options();
  options.retry.unit = std::chrono::milliseconds(2);
  CheckpointDirectory directory(mine, options);
  EXPECT_THROW(directory.newest_verified(), UnreadableError);
  fs::permissions(mine / "step-00000003", fs::perms::owner_all);
  EXPECT_EQ(directory.newest_verified()->checkpoint.manifest().step, 3U);
  // A run resumes from a checkpoint that becomes readable during the wait.
  fs::permissions(mine / "step-00000003", fs::perms::none);
  options.retry.unit = std::chrono::milliseconds(200);
  std::jthread fixes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fs::permissions(mine / "step-00000003", fs::perms::owner_all);
  });
  CheckpointDirectory patient(mine, options);
  EXPECT_EQ(patient.newest_verified()->checkpoint.manifest().step, 3U);
}

TEST(Leftovers, MissingDirectoryHasNone) {
  const TempDirectory top;
  EXPECT_THAT(remove_leftovers(top / "missing", [](const OwnerTag&) { return true; }), IsEmpty());
}

}  // namespace
}  // namespace ddp::ckpt
