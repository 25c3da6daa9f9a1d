// SPDX-License-Identifier: Apache-2.0
// Runs whose checkpoints go to a disk of each node first.
#include "ddp_runtime/train/checkpoint/local/local_saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/data/tensor_dataset.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/saved_arrays.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class LocalSavesTest : public testing::Test {
 protected:
  LocalSavesTest() {
    torch::set_num_threads(1);
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(7);
    const auto inputs = torch::rand({64, 4}, generator) * 2 - 1;
    training_ = std::make_shared<data::TensorDataset>(
        inputs, inputs.select(1, 0).gt(0).to(torch::kInt64), 2);
    options_.batch = 4;  // 8 steps per epoch on 2 ranks
    options_.epochs = 2;
    options_.optimizer.name = "adamw";
    options_.checkpoint.directory = dir_;
    options_.checkpoint.local_directory = local_;
    options_.checkpoint.every_epoch = false;
    options_.checkpoint.every_steps = 4;
    options_.checkpoint.keep_last = 100;
    options_.checkpoint.bytes_per_writer = 1;  // both ranks write
  }

  // Calls `after_step` on all ranks, and returns rank 0's result. Stores the lines in `lines_`,
  // also those of a run that fails.
  RunResult run(const std::function<void(const StepEvent&)>& after_step = {}) {
    lines_.clear();
    std::mutex mutex;
    const data::DataPair data{"points", training_, nullptr};
    return train_ranks(2, options_, data, filled_layer,
                       [&](auto& rank) {
                         rank.task.callbacks.after_step = after_step;
                         rank.task.log = [&](const std::string& line) {
                           const std::lock_guard lock(mutex);
                           lines_.push_back(line);
                         };
                       })[0]
        .result;
  }

  // A run that ends when it has staged this step, before it is copied.
  void run_until(std::int64_t step) {
    EXPECT_THAT(error_of([&] {
                  run([step](const StepEvent& event) {
                    if (event.step == step) throw RuntimeError("the power failed");
                  });
                }),
                HasSubstr("the power failed"));
  }

  // The files below the node's disk with this ending.
  std::vector<fs::path> local_files(const std::string& ending) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(local_)) {
      if (entry.path().string().ends_with(ending)) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  test::TemporaryDirectory temporary_;
  fs::path dir_ = temporary_.path() / "ck";
  fs::path local_ = temporary_.path() / "local";
  std::shared_ptr<data::TensorDataset> training_;
  TrainOptions options_;
  std::vector<std::string> lines_;
};

TEST_F(LocalSavesTest, EndsLikeARunWithoutThem) {
  options_.checkpoint.local_directory.clear();
  const auto plain = run();
  EXPECT_THAT(steps_in(dir_), ElementsAre(4, 8, 12, 16));
  fs::remove_all(dir_);

  options_.checkpoint.local_directory = local_;
  const auto over_disks = run();
  EXPECT_EQ(over_disks.parameters_crc32c, plain.parameters_crc32c);
  EXPECT_EQ(steps_in(dir_).back(), 16U);
  EXPECT_EQ(over_disks.checkpoint, dir_ / "step-00000016");
  EXPECT_THAT(local_files(".h5"), IsEmpty());
  ckpt::Checkpoint::open(dir_ / "step-00000016").verify();
}

// The steps that are kept for good must not be replaced by later ones while they wait.
TEST_F(LocalSavesTest, CopiesEverySaveThatIsKeptForGood) {
  options_.checkpoint.keep_every_steps = 1;
  options_.checkpoint.keep_last = 1;
  run();
  EXPECT_EQ(steps_in(dir_).size(), 16U);
}

TEST_F(LocalSavesTest, ARestartedRunTakesOverWhatWasNotCopied) {
  options_.checkpoint.every_steps = 0;
  options_.checkpoint.directory.clear();
  options_.checkpoint.local_directory.clear();
  const auto plain = run();

  options_.checkpoint.directory = dir_;
  options_.checkpoint.local_directory = local_;
  options_.checkpoint.every_steps = 5;
  run_until(5);
  EXPECT_THAT(steps_in(dir_), IsEmpty());
  EXPECT_EQ(local_files(".h5").size(), 2U);
  const auto resumed = run();
  EXPECT_THAT(lines_[0], HasSubstr("copying step 5"));
  EXPECT_THAT(lines_[1], AllOf(HasSubstr("resumed from"), HasSubstr("step 5")));
  EXPECT_EQ(steps_in(dir_).front(), 5U);
  EXPECT_EQ(resumed.parameters_crc32c, plain.parameters_crc32c);
  EXPECT_THAT(local_files(".h5"), IsEmpty());
}

// A job can be killed when its last checkpoint is complete and its disks are not yet empty. The
// next one has nothing to train, and removes what that left; a later step could be of a longer run.
TEST_F(LocalSavesTest, ARunWithNothingLeftToDoEmptiesTheDisks) {
  run_until(4);
  const auto save = local_files("rank-00000-of-00002.h5").at(0).parent_path();
  run();
  for (const auto* name : {".tmp-step-00000012.", ".tmp-step-00000016.", ".tmp-step-00000020."}) {
    auto left = save.filename().string();
    fs::create_directory(save.parent_path() / left.replace(0, std::string(name).size(), name));
  }
  run();
  EXPECT_THAT(lines_, Contains(HasSubstr("nothing to do")));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(save.parent_path())) {
    if (entry.is_directory()) left.push_back(entry.path().filename().string().substr(0, 18));
  }
  EXPECT_THAT(left, ElementsAre(".tmp-step-00000020"));
}

// Shells complete a directory's name with a slash.
TEST_F(LocalSavesTest, ADirectoryHasOneIdentityHoweverItIsWritten) {
  run_until(4);
  options_.checkpoint.directory = dir_ / "";
  run_until(6);
  EXPECT_THAT(lines_.at(0), HasSubstr("copying step 4"));
  fs::remove_all(dir_ / "step-00000004");
  options_.checkpoint.directory = dir_ / "." / "";
  run_until(6);
  EXPECT_THAT(lines_.at(0), HasSubstr("copying step 4"));
}

// The second process saves on the same line as the first.
TEST_F(LocalSavesTest, EachProcessContinuesTheOneBefore) {
  options_.checkpoint.every_steps = 3;
  run_until(3);
  run_until(6);
  EXPECT_EQ(steps_in(dir_).front(), 3U);
  run_until(9);
  EXPECT_THAT(lines_[0], HasSubstr("copying step 6"));
  EXPECT_THAT(steps_in(dir_), ElementsAre(3, 6));
}

TEST_F(LocalSavesTest, ASaveThatMissesAShardIsNotUsed) {
  run_until(4);
  fs::remove(local_files("rank-00001-of-00002.h5.json").at(0));
  run_until(8);
  EXPECT_THAT(lines_[0], HasSubstr("hold 1 of the 2 files of a later save, step 4"));
  EXPECT_THAT(lines_, Not(Contains(HasSubstr("resumed from"))));
}

TEST_F(LocalSavesTest, DamagedShardsAreReportedAndNotUsed) {
  run_until(4);
  const auto file = local_files("rank-00001-of-00002.h5").at(0);
  std::fstream(file, std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('\x7f');
  run_until(8);
  EXPECT_THAT(lines_[1],
              HasSubstr("the save of step 4 from the nodes' own disks is damaged and is not used"));
  EXPECT_THAT(lines_, Not(Contains(HasSubstr("resumed from"))));
}

// A job that ends while it copies one save has staged the next, so the disks hold both.
TEST_F(LocalSavesTest, TheSaveBeforeADamagedOneIsUsed) {
  options_.checkpoint.every_steps = 3;
  run_until(3);
  const auto before = local_files("rank-00001-of-00002.h5").at(0).parent_path();
  fs::rename(before, temporary_.path() / "before");
  options_.checkpoint.every_steps = 6;
  run_until(6);
  const auto damaged = local_files("rank-00001-of-00002.h5").at(0);
  std::fstream(damaged, std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('\x7f');
  fs::rename(temporary_.path() / "before", before);
  run_until(5);
  EXPECT_THAT(lines_.at(0), HasSubstr("copying step 6"));
  EXPECT_THAT(lines_.at(1),
              HasSubstr("the save of step 6 from the nodes' own disks is damaged and is not used"));
  EXPECT_THAT(lines_.at(2), HasSubstr("copying step 3"));
  EXPECT_THAT(lines_.at(3), AllOf(HasSubstr("resumed from"), HasSubstr("step 3")));
}

// What an earlier run left is neither used by a run that starts over nor by its successors, even if
// it is of a later step.
TEST_F(LocalSavesTest, ARunThatStartsOverForgetsThem) {
  const auto begin_restart = [](const char* number) { ::setenv("SLURM_RESTART_COUNT", number, 1); };
  begin_restart("0");
  run_until(4);
  begin_restart("1");
  options_.checkpoint.resume = "never";
  options_.checkpoint.every_steps = 2;
  run_until(2);
  begin_restart("2");
  options_.checkpoint.resume = "auto";
  run_until(4);
  ::unsetenv("SLURM_RESTART_COUNT");
  EXPECT_THAT(lines_.at(0), HasSubstr("copying step 2"));
}

// Each save finds the one before it staged. A save takes its place only if it is not being copied.
TEST_F(LocalSavesTest, ANodeHoldsAtMostThreeSaves) {
  options_.checkpoint.every_steps = 1;
  std::size_t most = 0;
  std::mutex mutex;
  run([&](const StepEvent&) {
    const std::lock_guard lock(mutex);
    std::size_t saves = 0;
    std::error_code ignored;  // another rank removes some
    for (const auto& store :
         fs::directory_iterator(local_ / ("slurm-ddp-" + std::to_string(geteuid())), ignored)) {
      for (const auto& entry : fs::directory_iterator(store.path(), ignored)) {
        saves += entry.path().filename().string().starts_with(".tmp-") ? 1 : 0;
      }
    }
    most = std::max(most, saves);
  });
  EXPECT_GE(most, 1U);
  EXPECT_LE(most, 3U);
}

// A rollback removes the identity: the save may follow from what was set aside.
TEST_F(LocalSavesTest, ADirectoryWithoutIdentityHasNone) {
  run_until(4);
  ASSERT_TRUE(fs::remove(dir_ / ".local-saves"));
  run_until(4);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("holds no checkpoint")));
}

TEST_F(LocalSavesTest, ADiskThatFailsIsAvoided) {
  std::mutex mutex;
  run([&](const StepEvent& event) {
    const std::lock_guard lock(mutex);
    // The store is made by the first save.
    if (event.step != 5 || !fs::is_directory(local_)) return;
    // At once, because a save may be writing there.
    fs::rename(local_, local_.string() + "-before");
    std::ofstream{local_};
  });
  EXPECT_THAT(lines_,
              Contains(AllOf(HasSubstr("warning: node-local saves to"),
                             HasSubstr("stop, and checkpoints are saved to"), HasSubstr("rank ")))
                  .Times(1));
  EXPECT_EQ(steps_in(dir_).back(), 16U);
}

TEST_F(LocalSavesTest, ADiskThatCannotBeWrittenAtTheFirstSaveIsAvoided) {
  run_until(4);
  const auto store = local_files("rank-00000-of-00002.h5").at(0).parent_path().parent_path();
  fs::remove_all(store);
  std::ofstream{store};
  run();
  EXPECT_THAT(lines_, Contains(HasSubstr("stop, and checkpoints are saved to")).Times(1));
  EXPECT_EQ(steps_in(dir_).back(), 16U);
}

TEST_F(LocalSavesTest, ADirectoryThatCannotBeUsedIsRefusedAtTheStart) {
  options_.checkpoint.local_directory = "relative";
  EXPECT_THAT(error_of([&] { run(); }), HasSubstr("relative, must be an absolute path"));
  options_.checkpoint.local_directory = "/proc/nothing";
  EXPECT_THAT(error_of([&] { run(); }), AllOf(HasSubstr("rank 0 on"), HasSubstr("/proc/nothing")));
}

}  // namespace
}  // namespace ddp::train
