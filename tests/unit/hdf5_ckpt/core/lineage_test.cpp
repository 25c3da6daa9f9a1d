// SPDX-License-Identifier: Apache-2.0
// The checkpoint that a run resumes from: the rule as a table, and runs with real files that are
// started, requeued, rolled back and requeued again.

#include "hdf5_ckpt/core/lineage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/resume.h"
#include "hdf5_ckpt/directory/retention.h"
#include "tests/unit/error_of.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::Names;
using test::names_in;
using test::Steps;
using test::TempDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using From = ResumePlan::From;

const Origin kAt110 = {110, 0xAA, "/d/step-00000110"};
const Origin kAt120 = {120, 0xAA, "/d/step-00000120"};

struct PlanCase {
  const char* what;
  StartingPoint start;
  std::vector<Ancestor> there;
  From from;
  std::vector<std::uint64_t> set_aside;
};

std::vector<PlanCase> plan_cases() {
  const Lineage old{"run", {}, {}};
  const Lineage rolled_back{"run", {}, {kAt120}};
  const Lineage other{"other", {}, {}};
  const StartingPoint inside{kAt120.path, 120, 0xAA, old, true};
  const StartingPoint outside{"/elsewhere/step-00000120", 120, 0xAA, other, false};
  const StartingPoint gone{kAt120.path, {}, 0, {}, true};
  StartingPoint best = inside;
  best.path = "/d/best/step-00000120";
  const Lineage left{"run", {}, {kAt110}};  // a branch that began at step 110
  const Lineage second{"run", {}, {kAt110, {112, 0xCC, "/d/step-00000112"}}};
  StartingPoint branched = best;
  branched.lineage = left;
  StartingPoint copied = outside;
  copied.lineage = old;
  StartingPoint rewritten = inside;
  rewritten.crc32c = 0xBB;
  StartingPoint saved_again = rewritten;
  saved_again.lineage->replaced = {0x99, 0xAA};
  StartingPoint unknown = inside;
  unknown.lineage.reset();
  return {
      {"empty directory", outside, {}, From::start, {}},
      {"first rollback",
       inside,
       {{110, old}, {120, old}, {130, old}, {150, old}},
       From::start,
       {150, 130}},
      {"rollback to the newest", inside, {{110, old}, {120, old}}, From::start, {}},
      {"rollback to the best", best, {{130, old}, {140, old}}, From::start, {140, 130}},
      {"return to a branch that was abandoned",
       best,
       {{110, old}, {115, left}, {120, left}, {130, left}},
       From::start,
       {130, 120, 115}},
      {"return to a branch of a branch",
       branched,
       {{110, old}, {112, old}, {114, second}, {116, second}},
       From::start,
       {116, 114, 112}},
      {"rollback to a copy", copied, {{130, old}}, From::start, {130}},
      {"rollback repeated before its first save", inside, {{120, old}}, From::start, {}},
      {"rollback repeated after its first save",
       inside,
       {{120, old}, {130, rolled_back}},
       From::newest,
       {}},
      {"rollback repeated after the start was deleted",
       gone,
       {{150, rolled_back}, {160, rolled_back}},
       From::newest,
       {}},
      {"start deleted, no checkpoint reached from it", gone, {{150, old}}, From::start, {}},
      {"another checkpoint with the same name",
       rewritten,
       {{120, old}, {130, rolled_back}},
       From::start,
       {130}},
      {"the start was saved again in its place",
       saved_again,
       {{120, old}, {130, rolled_back}},
       From::newest,
       {}},
      {"a branch of a branch",
       inside,
       {{160, rolled_back}, {170, Lineage{"run", 160, {kAt120, {160, 0xCC, "/d/step-00000160"}}}}},
       From::newest,
       {}},
      {"start from another directory repeated",
       outside,
       {{130, Lineage{"mine", 120, {kAt120}}}},
       From::newest,
       {}},
      {"start from another directory saved as it was",
       outside,
       {{120, Lineage{"mine", 120, {kAt120}}}},
       From::newest,
       {}},
      {"another run's directory", outside, {{130, old}}, From::nowhere, {}},
      {"directory of an older version", outside, {{130, {}}}, From::nowhere, {}},
      {"rollback in the directory of an older version",
       unknown,
       {{120, {}}, {130, {}}},
       From::start,
       {130}},
  };
}

TEST(ResumePlan, FollowsTheTable) {
  for (const PlanCase& c : plan_cases()) {
    const ResumePlan plan = plan_resume(c.start, c.there, "/d");
    EXPECT_EQ(plan.from, c.from) << c.what;
    EXPECT_EQ(plan.set_aside, c.set_aside) << c.what;
    EXPECT_EQ(plan.refusal.empty(), c.from != From::nowhere) << c.what;
  }
}

TEST(Lineage, ForkIsAnotherRun) {
  const StartingPoint start{"/a/step-00000007", 7, 1, Lineage{"a", 6, {kAt120}}, false};
  const Lineage fork = lineage_from(start, "new", false);
  EXPECT_EQ(fork.run, "new");
  EXPECT_EQ(fork.parent, 7U);
  EXPECT_THAT(fork.origins, ElementsAre(kAt120, Origin{7, 1, "/a/step-00000007"}));
  EXPECT_EQ(lineage_from(start, "new", true).run, "a");
}

TEST(Lineage, KeepsAtMostTheOriginsThatAManifestMayHave) {
  StartingPoint start{"/a/\n", 7, 1, Lineage{"a", 6, {}}, false};
  start.lineage->origins.assign(kMaxOrigins, kAt120);
  const Lineage lineage = lineage_from(start, "new", false);
  EXPECT_EQ(lineage.origins.size(), kMaxOrigins);
  EXPECT_EQ(lineage.origins.back(), (Origin{7, 1, ""})) << "manifests must not contain this path";
}

// A run that saves to `root`, represented by its checkpoints.
class SavedRun {
 public:
  explicit SavedRun(fs::path root) : root_(std::move(root)) {}

  // Returns the step that the run resumes from; nullopt if it starts from scratch.
  std::optional<std::uint64_t> start(const std::string& resume = "auto") {
    notes_.clear();
    lineage_ = {new_run_name(), {}, {}};
    const auto accept = [](const Checkpoint& checkpoint) { checkpoint.verify(); };
    std::optional<Resumption> resumed;
    if (resume == "auto")
      resumed = resume_newest(directory_, accept);
    else
      resumed = resume_path(&directory_, resume, accept);
    if (!resumed) return std::nullopt;
    const std::uint64_t step = resumed->checkpoint.manifest().step;
    directory_.set_aside(resumed->set_aside,
                         resumed->in_directory ? std::optional(step) : std::nullopt, kOwner);
    lineage_ = resumed->lineage;
    notes_ = resumed->notes;
    return step;
  }

  void save(std::uint64_t step, std::size_t keep_last = 3) {
    CheckpointInfo info = test::test_info();
    info.lineage = lineage_;
    directory_.save(step, kOwner, test::small_model(step).views(), info);
    lineage_.parent = step;
    Retention(root_, kOwner).apply({keep_last, step});
  }

  std::vector<std::uint64_t> steps() const { return test::steps_in(root_); }
  std::string path_of(std::uint64_t step) const { return root_ / step_directory_name(step); }
  std::vector<std::string> set_aside() const {
    std::vector<std::string> names;
    for (const std::string& name : names_in(root_))
      if (name.starts_with(".superseded-")) names.push_back(name.substr(12, 13));
    return names;
  }
  const std::vector<std::string>& notes() const { return notes_; }
  const Lineage& lineage() const { return lineage_; }

 private:
  inline static const OwnerTag kOwner = {"test", 0, "host", 100};
  fs::path root_;
  CheckpointDirectory directory_{root_, test::small_options()};
  Lineage lineage_;
  std::vector<std::string> notes_;
};

class Resuming : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_.start(), std::nullopt);
    for (const std::uint64_t step : {110, 120, 130, 140}) run_.save(step);
  }
  std::string hint() const {
    std::string text;
    std::getline(std::ifstream(root_ / "ck/latest"), text);
    return text;
  }

  const TempDirectory root_{test::On::memory};
  SavedRun run_{root_ / "ck"};
};

TEST_F(Resuming, RollbackKeepsItsSavesAndSetsLaterCheckpointsAside) {
  EXPECT_EQ(run_.steps(), (Steps{140, 130, 120}));
  EXPECT_EQ(run_.start(run_.path_of(120)), 120U);
  EXPECT_EQ(run_.steps(), (Steps{120}));
  EXPECT_EQ(hint(), "step-00000120");
  EXPECT_EQ(run_.set_aside(), (Names{"step-00000130", "step-00000140"}));
  run_.save(124);
  EXPECT_EQ(run_.steps(), (Steps{124, 120}));
  EXPECT_EQ(hint(), "step-00000124");
  EXPECT_EQ(run_.start(), 124U);
}

TEST_F(Resuming, AFileIsNotACheckpoint) {
  std::ofstream(root_ / "own.pt") << "x";
  EXPECT_THAT(error_of([&] { run_.start(root_ / "own.pt"); }),
              HasSubstr("own.pt' is a file, not a checkpoint; to start from the weights in it, use "
                        "--init-from"));
  EXPECT_THAT(error_of([&] { run_.start(run_.path_of(140) + "/model.h5"); }),
              HasSubstr("is one file of a checkpoint; name its directory '" + run_.path_of(140)));
}

TEST_F(Resuming, RepeatedRollbackCommandContinues) {
  const std::string command = run_.path_of(120);
  run_.start(command);
  EXPECT_EQ(run_.start(command), 120U) << "no step was saved";
  EXPECT_THAT(run_.notes(), IsEmpty());
  run_.save(130);
  EXPECT_EQ(run_.start(command), 130U);
  ASSERT_EQ(run_.notes().size(), 1U);
  EXPECT_THAT(run_.notes()[0], HasSubstr("ddp-ckpt rollback"));
  for (const std::uint64_t step : {140, 150, 160}) run_.save(step);
  EXPECT_THAT(run_.steps(), Not(testing::Contains(120))) << "the starting point has been deleted";
  EXPECT_EQ(run_.start(command), 160U);
  EXPECT_EQ(run_.start(command + "/"), 160U);
}

TEST_F(Resuming, SecondRollbackRollsBackToo) {
  run_.start(run_.path_of(120));
  for (const std::uint64_t step : {130, 140}) run_.save(step);
  EXPECT_EQ(run_.start(run_.path_of(130)), 130U);
  run_.save(135);
  EXPECT_EQ(run_.steps(), (Steps{135, 130, 120}));
  // The first command, repeated, continues from the result of the second rollback.
  EXPECT_EQ(run_.start(run_.path_of(120)), 135U);
}

TEST_F(Resuming, StartFromAnotherDirectoryHappensOnce) {
  SavedRun fine_tuning(root_ / "other");
  EXPECT_EQ(fine_tuning.start(run_.path_of(130)), 130U);
  EXPECT_NE(fine_tuning.lineage().run, run_.lineage().run);
  for (const std::uint64_t step : {131, 132, 133, 134}) fine_tuning.save(step);
  EXPECT_EQ(fine_tuning.start(run_.path_of(130)), 134U);
  EXPECT_EQ(fine_tuning.start(), 134U);
  EXPECT_THAT(error_of([&] { fine_tuning.start(run_.path_of(140)); }),
              HasSubstr("holds checkpoints of another run"));
  EXPECT_EQ(fine_tuning.steps(), (Steps{134, 133, 132}));
}

// A run that had nothing left to train saves the state it started from.
TEST_F(Resuming, StartSavedAsItWasIsResumedFrom) {
  SavedRun chain(root_ / "other");
  EXPECT_EQ(chain.start(run_.path_of(130)), 130U);
  chain.save(130);
  EXPECT_EQ(chain.start(run_.path_of(130)), 130U);
  EXPECT_THAT(chain.notes(), ElementsAre(HasSubstr("has already started from")));
  EXPECT_THAT(chain.set_aside(), IsEmpty());
  EXPECT_EQ(chain.start(), 130U);
  chain.save(135);
  EXPECT_EQ(chain.start(run_.path_of(130)), 135U);
  test::damage(chain.path_of(135));
  EXPECT_EQ(chain.start(run_.path_of(130)), 130U);
}

TEST_F(Resuming, DamagedCheckpointsAheadOfTheStartAreSkipped) {
  const std::string command = run_.path_of(120);
  run_.start(command);
  run_.save(130);
  run_.save(140);
  test::damage(run_.path_of(140));
  EXPECT_EQ(run_.start(command), 130U);
  test::damage(run_.path_of(130));
  EXPECT_EQ(run_.start(command), 120U);
  EXPECT_EQ(run_.notes().size(), 2U);
}

TEST_F(Resuming, NamesTheNewestOfManyDamagedCheckpoints) {
  for (const std::uint64_t step : {150, 160, 170}) run_.save(step, 7);
  for (const std::uint64_t step : run_.steps()) test::damage(run_.path_of(step));
  const std::size_t all = run_.steps().size();
  ASSERT_GT(all, 5U);
  const auto error = error_of([&] { run_.start(); });
  EXPECT_THAT(error, HasSubstr("none of the " + std::to_string(all) + " checkpoints"));
  for (const std::uint64_t step : run_.steps()) {
    EXPECT_EQ(error.find(step_directory_name(step)) != error.npos,
              step >= run_.steps()[4])  // the newest comes first
        << step;
  }
}

TEST_F(Resuming, RefusesToStartFromScratchBesideCheckpointsSetAside) {
  fs::create_directories(root_ / "ck/best");
  fs::rename(run_.path_of(120), root_ / "ck/best/step-00000120");
  EXPECT_EQ(run_.start(root_ / "ck/best/step-00000120"), 120U);
  EXPECT_THAT(run_.steps(), IsEmpty());
  EXPECT_FALSE(fs::exists(root_ / "ck/latest"));
  EXPECT_THAT(error_of([&] { run_.start(); }), HasSubstr("set aside"));
  EXPECT_EQ(run_.start(root_ / "ck/best/step-00000120"), 120U);
  run_.save(125);
  EXPECT_EQ(run_.start(), 125U);
}

TEST_F(Resuming, DirectoryIsNotAStartingPoint) {
  EXPECT_THAT(error_of([&] { run_.start(root_ / "ck"); }),
              HasSubstr("is a directory of checkpoints; name one of them, such as"));
  EXPECT_THAT(error_of([&] { run_.start(root_ / "nothing"); }), HasSubstr("is not a checkpoint"));
}

TEST_F(Resuming, CopyUnderAnotherStepIsRejected) {
  fs::copy(run_.path_of(130), run_.path_of(900), fs::copy_options::recursive);
  EXPECT_EQ(run_.start(), 140U);
  EXPECT_THAT(run_.notes()[0], HasSubstr("its manifest says step 130"));
  EXPECT_THAT(error_of([&] { run_.start(run_.path_of(900)); }),
              HasSubstr("its manifest says step 130"));
}

TEST_F(Resuming, SettingAsideTheSameStepTwiceKeepsBoth) {
  for (int i = 0; i < 2; ++i) {
    run_.start(run_.path_of(120));
    run_.save(130);
    run_.save(140);
    CheckpointDirectory(root_ / "ck")
        .set_aside(std::vector<std::uint64_t>{140, 130}, 120, {"test", 0, "host", 100});
  }
  EXPECT_EQ(run_.set_aside().size(), 6U);
}

TEST_F(Resuming, KeepsBothCheckpointsOfOneStepIfRequested) {
  SaveOptions options = test::small_options();
  options.if_exists = IfExists::set_aside;
  const Saved saved = test::save_step(root_ / "ck", 140, options);
  ASSERT_EQ(saved.notes.size(), 1U);
  EXPECT_THAT(saved.notes[0], HasSubstr("replaced another checkpoint of that step, kept as"));
  EXPECT_EQ(run_.set_aside(), (Names{"step-00000140"}));
}

TEST_F(Resuming, RetentionNeverDeletesTheLastSave) {
  Retention retention(root_ / "ck", {"test", 0, "host", 100});
  const RetentionReport report = retention.apply({1, 120});
  EXPECT_THAT(report.removed, IsEmpty());
  EXPECT_EQ(run_.steps(), (Steps{140, 130, 120}));
  EXPECT_EQ(retention.apply({1, 130}).removed, (Steps{120}));
}

}  // namespace
}  // namespace ddp::ckpt
