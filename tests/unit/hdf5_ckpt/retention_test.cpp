// SPDX-License-Identifier: Apache-2.0
// The checkpoints that are deleted or kept, and interrupted deletions.

#include "hdf5_ckpt/retention.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "faulty_ops.h"
#include "hdf5_ckpt/error.h"
#include "support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::Fault;
using test::FaultyOps;
using test::names_in;
using test::small_model;
using test::TempDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const OwnerTag kSaver = {"test", 1, "host", 100};

std::vector<std::uint64_t> steps_in(const fs::path& root) {
  std::vector<std::uint64_t> steps;
  for (const Candidate& candidate : CheckpointDirectory(root).candidates())
    steps.push_back(candidate.step);
  return steps;
}

void flip_in(const fs::path& step) {
  std::vector<std::byte> bytes = test::file_bytes(step / "model.h5");
  bytes.back() ^= std::byte{1};
  test::put_file_bytes(step / "model.h5", bytes);
}

class RetentionTest : public testing::Test {
 protected:
  void SetUp() override {
    CheckpointDirectory directory(root_.path(), test::small_options());
    for (const std::uint64_t step : {1, 2, 3, 4, 5})
      directory.save(step, kSaver, small_model(step).views(), test::test_info());
  }

  RetentionReport keep(std::size_t n) { return Retention(root_.path(), kSaver).apply({n}); }

  const TempDirectory root_{test::On::memory};
};

TEST_F(RetentionTest, KeepsTheNewest) {
  const RetentionReport report = keep(2);
  EXPECT_THAT(report.removed, ElementsAre(1, 2, 3));
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_THAT(names_in(root_.path()), ElementsAre("latest", "step-00000004", "step-00000005"));
  EXPECT_THAT(keep(2).removed, IsEmpty());
}

TEST_F(RetentionTest, KeepsAllIfThereAreFew) {
  EXPECT_THAT(keep(5).removed, IsEmpty());
  EXPECT_THAT(keep(100).removed, IsEmpty());
  EXPECT_THAT(steps_in(root_.path()), ElementsAre(5, 4, 3, 2, 1));
}

TEST_F(RetentionTest, NeverDeletesEverything) {
  EXPECT_THAT(test::error_of([&] { keep(0); }), HasSubstr("at least 1"));
  EXPECT_THAT(steps_in(root_.path()), ElementsAre(5, 4, 3, 2, 1));
}

TEST_F(RetentionTest, DamagedCheckpointsAreNeitherCountedNorDeleted) {
  flip_in(root_ / "step-00000005");
  flip_in(root_ / "step-00000002");
  fs::remove(root_ / "step-00000004/manifest.json");
  const RetentionReport report = keep(1);
  EXPECT_THAT(report.removed, ElementsAre(1));
  EXPECT_THAT(steps_in(root_.path()), ElementsAre(5, 4, 3, 2));
  ASSERT_EQ(report.notes.size(), 3U);
  EXPECT_THAT(report.notes[0], HasSubstr("not counted and not deleted: checkpoint"));
  EXPECT_THAT(report.notes[0], HasSubstr("step-00000005"));
}

TEST_F(RetentionTest, VerifiedCheckpointsAreNotReadAgain) {
  std::uint64_t read = 0;
  const ReadOptions counting{1, [&read](std::uint64_t, std::uint64_t) { ++read; }};
  Retention retention(root_.path(), kSaver);
  retention.remember_verified(Checkpoint::open(root_ / "step-00000005"));
  retention.apply({4}, counting);
  const std::uint64_t first = read;
  EXPECT_GT(first, 0U);
  retention.apply({4}, counting);
  EXPECT_EQ(read, first);
  // A new checkpoint of the same step does not count as verified.
  CheckpointDirectory(root_.path(), {.if_exists = IfExists::replace})
      .save(5, kSaver, small_model(50).views(), test::test_info());
  retention.apply({4}, counting);
  EXPECT_GT(read, first);
}

void save_permanent(const fs::path& root, std::uint64_t step) {
  CheckpointInfo info = test::test_info();
  info.permanent = true;
  CheckpointDirectory(root, {.if_exists = IfExists::replace})
      .save(step, kSaver, small_model(step).views(), info);
}

TEST_F(RetentionTest, PermanentOnesAreCountedButNeverDeleted) {
  save_permanent(root_.path(), 2);
  save_permanent(root_.path(), 4);
  EXPECT_THAT(keep(2).removed, ElementsAre(1, 3));
  EXPECT_THAT(steps_in(root_.path()), ElementsAre(5, 4, 2)) << "4 is one of the newest two";
  EXPECT_THAT(keep(1).removed, IsEmpty());
}

// A new process opens all of them once.
TEST_F(RetentionTest, PermanentOnesAreOpenedOnce) {
  save_permanent(root_.path(), 2);
  Retention retention(root_.path(), kSaver);
  retention.apply({1});
  EXPECT_THAT(steps_in(root_.path()), ElementsAre(5, 2));
  fs::rename(root_ / "step-00000002/manifest.json", root_ / "step-00000002/away");
  EXPECT_THAT(retention.apply({1}).notes, IsEmpty());
  fs::rename(root_ / "step-00000002/away", root_ / "step-00000002/manifest.json");
  // The next checkpoint of that step is another one.
  CheckpointDirectory(root_.path(), {.if_exists = IfExists::replace})
      .save(2, kSaver, small_model(2).views(), test::test_info());
  retention.remember_verified(Checkpoint::open(root_ / "step-00000002"));
  EXPECT_THAT(retention.apply({1}).removed, ElementsAre(2));
}

TEST_F(RetentionTest, PermanentOneThatIsNotNeededIsNotRead) {
  save_permanent(root_.path(), 1);
  std::uint64_t read = 0;
  const ReadOptions counting{1, [&read](std::uint64_t, std::uint64_t) { ++read; }};
  Retention retention(root_.path(), kSaver);
  for (const std::uint64_t step : {2, 3, 4, 5})
    retention.remember_verified(Checkpoint::open(root_ / step_directory_name(step)));
  EXPECT_THAT(retention.apply({1}, counting).removed, ElementsAre(2, 3, 4));
  EXPECT_EQ(read, 0U);
}

TEST_F(RetentionTest, CheckpointsInUseStayForNow) {
  RetentionPolicy policy{1};
  policy.in_use = [](std::uint64_t step) { return step == 2; };
  EXPECT_THAT(Retention(root_.path(), kSaver).apply(policy).removed, ElementsAre(1, 3, 4));
  EXPECT_THAT(steps_in(root_.path()), ElementsAre(5, 2));
  EXPECT_THAT(keep(1).removed, ElementsAre(2));
}

TEST_F(RetentionTest, KeepFirstFollowsTheOrderOfTheCaller) {
  flip_in(root_ / "step-00000003");
  std::vector<Candidate> order;
  for (const std::uint64_t step : {3, 1, 5, 2})
    order.push_back({step, root_ / step_directory_name(step)});
  const RetentionReport report = Retention(root_.path(), kSaver).keep_first(order, 1);
  EXPECT_THAT(report.removed, ElementsAre(2, 5));
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("not counted and not deleted: checkpoint")));
  EXPECT_THAT(steps_in(root_.path()), ElementsAre(4, 3, 1)) << "4 was not in the list";
  EXPECT_THAT(Retention(root_.path(), kSaver).keep_first({&order[1], 1}, 0).removed,
              ElementsAre(1));
}

TEST_F(RetentionTest, AdoptMovesACheckpointBetweenDirectories) {
  const fs::path other = root_ / "best";
  CheckpointDirectory best(other);
  const Candidate three{3, root_ / "step-00000003"};
  EXPECT_EQ(best.adopt(three, kSaver), other / "step-00000003");
  EXPECT_THAT(steps_in(other), ElementsAre(3));
  EXPECT_THAT(steps_in(root_.path()), ElementsAre(5, 4, 2, 1));
  EXPECT_TRUE(test::holds(Checkpoint::open(other / "step-00000003"), small_model(3)));
  best.adopt({1, root_ / "step-00000001"}, kSaver);
  std::string hint;
  std::ifstream(other / "latest") >> hint;
  EXPECT_EQ(hint, "step-00000003") << "the newest there, not the last one moved";
  fs::copy(other / "step-00000003", root_ / "step-00000003", fs::copy_options::recursive);
  EXPECT_THAT(test::error_of([&] { best.adopt(three, kSaver); }), HasSubstr("exists"));
  EXPECT_TRUE(test::holds(Checkpoint::open(three.path), small_model(3)));
}

class AfterARestart : public RetentionTest {
 protected:
  // Returns the steps that apply() reads in a newly started process.
  std::vector<std::uint64_t> read_again() {
    std::uint64_t pieces = 0;
    std::vector<std::uint64_t> read;
    for (const Candidate& candidate : CheckpointDirectory(root_.path()).candidates()) {
      const TempDirectory alone(test::On::memory);
      fs::copy(candidate.path, alone / candidate.path.filename().string(),
               fs::copy_options::recursive);
      if (fs::exists(mark_)) fs::copy(mark_, alone / ".verified");
      pieces = 0;
      Retention retention(alone.path(), kSaver);
      retention.remember_across_restarts();
      retention.apply({1}, {1, [&](std::uint64_t, std::uint64_t) { ++pieces; }});
      if (pieces > 0) read.push_back(candidate.step);
    }
    return read;
  }

  const fs::path mark_ = root_ / ".verified";
};

TEST_F(AfterARestart, VerifiedCheckpointsAreNotReadAgain) {
  EXPECT_THAT(read_again(), ElementsAre(5, 4, 3, 2, 1));
  Retention before(root_.path(), kSaver);
  before.remember_across_restarts();
  before.remember_verified(Checkpoint::open(root_ / "step-00000002"));
  before.remember_verified(Checkpoint::open(root_ / "step-00000004"));
  EXPECT_THAT(read_again(), ElementsAre(5, 3, 1));
  before.apply({3});
  EXPECT_THAT(read_again(), IsEmpty());
  EXPECT_THAT(names_in(root_.path()), ElementsAre(".verified", "latest", "step-00000003",
                                                  "step-00000004", "step-00000005"));
}

TEST_F(AfterARestart, NewCheckpointOfTheSameStepIsRead) {
  Retention before(root_.path(), kSaver);
  before.remember_across_restarts();
  before.apply({5});
  CheckpointDirectory(root_.path(), {.if_exists = IfExists::replace})
      .save(3, kSaver, small_model(30).views(), test::test_info());
  EXPECT_THAT(read_again(), ElementsAre(3));
}

TEST_F(AfterARestart, InvalidMarkIsIgnored) {
  for (const std::string& text :
       {std::string(), std::string("5"), std::string("5 zzzzzzzz\n"), std::string("-5 00000000\n"),
        std::string("99999999999999999999 00000000\n"), std::string(70000, '7'),
        std::string("5 00000000\n4 00000000\n")}) {
    std::ofstream(mark_) << text;
    EXPECT_THAT(read_again(), ElementsAre(5, 4, 3, 2, 1)) << text.substr(0, 40);
  }
  fs::remove(mark_);
  ASSERT_EQ(::mkfifo(mark_.c_str(), 0600), 0);  // without a writer, opening it would hang
  Retention(root_.path(), kSaver).remember_across_restarts();
  fs::remove(mark_);
  fs::create_directory(mark_);
  Retention retention(root_.path(), kSaver);
  retention.remember_across_restarts();
  EXPECT_THAT(retention.apply({2}).removed, ElementsAre(1, 2, 3));
}

// The mark avoids reads before deletions, but does not affect loading.
TEST_F(AfterARestart, LoadingVerifiesDespiteTheMark) {
  Retention before(root_.path(), kSaver);
  before.remember_across_restarts();
  before.apply({5});
  flip_in(root_ / "step-00000005");
  const auto loaded = CheckpointDirectory(root_.path()).newest_verified();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->checkpoint.manifest().step, 4U);
}

TEST_F(AfterARestart, LinkInPlaceOfTheMarkIsReplacedAndNotFollowed) {
  const TempDirectory elsewhere;
  std::ofstream(elsewhere / "precious") << "x";
  fs::create_symlink(elsewhere / "precious", mark_);
  fs::create_symlink(elsewhere / "precious", root_ / (".verified." + kSaver.text()));
  Retention retention(root_.path(), kSaver);
  retention.remember_across_restarts();
  retention.apply({5});
  EXPECT_EQ(test::file_bytes(elsewhere / "precious").size(), 1U);
  EXPECT_FALSE(fs::is_symlink(mark_));
  EXPECT_THAT(read_again(), IsEmpty());
}

TEST_F(RetentionTest, InterruptedDeletionLeavesNoPartialCheckpoint) {
  FaultyOps probe;
  {
    const TempDirectory copy(test::On::memory);
    fs::copy(root_.path(), copy.path(), fs::copy_options::recursive);
    Retention(copy.path(), kSaver, probe).apply({2});
  }
  ASSERT_GE(probe.calls().size(), 15U);
  for (const Fault fault :
       {Fault::crash_before, Fault::crash_after, Fault::error, Fault::error_from_here_on})
    for (std::size_t k = 0; k < probe.calls().size(); ++k) {
      const TempDirectory copy(test::On::memory);
      fs::copy(root_.path(), copy.path(), fs::copy_options::recursive);
      FaultyOps ops(fault, k, EIO);
      try {
        Retention(copy.path(), kSaver, ops).apply({2});
      } catch (const test::Crashed&) {
      } catch (const Error& error) {
        ASSERT_THAT(error.what(), HasSubstr("cannot"));
      }
      const std::vector<std::uint64_t> left = steps_in(copy.path());
      ASSERT_GE(left.size(), 2U);
      for (const std::uint64_t step : left)
        ASSERT_TRUE(
            test::holds(Checkpoint::open(copy / step_directory_name(step)), small_model(step)));
      ASSERT_EQ(left[0], 5U);
      ASSERT_EQ(left[1], 4U);
      remove_leftovers(copy.path(), [](const OwnerTag& owner) { return owner == kSaver; });
      for (const std::string& name : names_in(copy.path()))
        ASSERT_FALSE(name.starts_with(".")) << name;
    }
}

TEST_F(RetentionTest, FailedDeletionIsNoted) {
  FaultyOps probe;
  CheckpointDirectory(root_.path(), {}, probe).candidates();
  FaultyOps ops(Fault::error_from_here_on, probe.calls().size(), EACCES);
  const RetentionReport report = Retention(root_.path(), kSaver, ops).apply({4});
  EXPECT_THAT(report.removed, IsEmpty());
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_THAT(report.notes[0], HasSubstr("cannot set aside for deletion"));
}

TEST_F(RetentionTest, LeftoversOfOtherOwnersStay) {
  const auto make = [&](const std::string& name) {
    fs::create_directory(root_ / name);
    std::ofstream(root_ / name / "model.h5") << "x";
  };
  make(".tmp-step-00000006.test.r0.host.p1");    // an earlier restart, which is dead
  make(".trash-step-00000001.test.r0.host.p1");  // dead
  make(".tmp-step-00000006.other.r0.host.p1");   // another job
  make(".tmp-step-00000006.test.r2.host.p1");    // a later restart
  make(".tmp-step-00000006.test.r1.host.p100");  // this process
  make(".broken-step-00000006.test.r0.host.p1");
  make(".tmp-step-00000006");
  std::ofstream(root_ / ".latest.test.r0.host.p1") << "x";
  const std::vector<std::string> notes = remove_leftovers(root_.path(), dead_relatives_of(kSaver));
  EXPECT_EQ(notes.size(), 3U);
  for (const std::string& note : notes) EXPECT_THAT(note, HasSubstr("removed the leftover"));
  EXPECT_THAT(
      names_in(root_.path()),
      ElementsAre(".broken-step-00000006.test.r0.host.p1", ".tmp-step-00000006",
                  ".tmp-step-00000006.other.r0.host.p1", ".tmp-step-00000006.test.r1.host.p100",
                  ".tmp-step-00000006.test.r2.host.p1", "latest", "step-00000001", "step-00000002",
                  "step-00000003", "step-00000004", "step-00000005"));
}

TEST_F(RetentionTest, LinkAmongLeftoversIsNotFollowed) {
  const TempDirectory elsewhere;
  std::ofstream(elsewhere / "precious") << "x";
  fs::create_directory_symlink(elsewhere.path(), root_ / ".tmp-step-00000006.test.r0.host.p1");
  EXPECT_EQ(remove_leftovers(root_.path(), dead_relatives_of(kSaver)).size(), 1U);
  EXPECT_FALSE(fs::exists(fs::symlink_status(root_ / ".tmp-step-00000006.test.r0.host.p1")));
  EXPECT_THAT(names_in(elsewhere.path()), ElementsAre("precious"));
}

TEST_F(RetentionTest, UnreadableCheckpointIsNeitherDeletedNorSetAside) {
  if (::geteuid() == 0 && ::seteuid(65534) != 0) GTEST_SKIP() << "root can read every file";
  const auto back = [](int*) { static_cast<void>(::seteuid(0)); };
  int unused = 0;
  const std::unique_ptr<int, decltype(back)> as_before(&unused, back);
  const TempDirectory mine(test::On::memory);
  for (const std::uint64_t step : {1, 2, 3}) test::save_step(mine.path(), step);
  fs::permissions(mine / "step-00000003", fs::perms::none);
  const RetentionReport report = Retention(mine.path(), kSaver).apply({1});
  EXPECT_THAT(report.removed, ElementsAre(1));
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_THAT(report.notes[0], HasSubstr("not read and not deleted"));
  // A save of that step does not move the unreadable checkpoint away.
  EXPECT_THAT(test::error_of([&] { test::save_step(mine.path(), 3); }),
              HasSubstr("Permission denied"));
  // A run does not resume from an older checkpoint.
  SaveOptions options = test::small_options();
  options.retry.unit = std::chrono::milliseconds(2);
  CheckpointDirectory directory(mine.path(), options);
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
  CheckpointDirectory patient(mine.path(), options);
  EXPECT_EQ(patient.newest_verified()->checkpoint.manifest().step, 3U);
}

TEST(Leftovers, MissingDirectoryHasNone) {
  const TempDirectory top;
  EXPECT_THAT(remove_leftovers(top / "missing", [](const OwnerTag&) { return true; }), IsEmpty());
}

}  // namespace
}  // namespace ddp::ckpt
