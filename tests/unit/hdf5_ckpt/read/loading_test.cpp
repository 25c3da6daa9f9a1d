// SPDX-License-Identifier: Apache-2.0
// The choice of the checkpoint to load, and reading it. damage_test.cpp covers wrong bytes.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <span>
#include <utility>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::ArraySet;
using test::damage;
using test::save_arrays;
using test::save_step;
using test::small_model;
using test::Steps;
using test::TempDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Directory, EmptyDirectoryIsNotAnError) {
  const TempDirectory top;
  EXPECT_FALSE(CheckpointDirectory(top).load_newest({}));
  EXPECT_FALSE(CheckpointDirectory(top / "missing").newest_verified());
}

TEST(Directory, OnlyStepsAreCandidates) {
  const TempDirectory root;
  for (const std::uint64_t step : {2, 100000000, 30}) save_step(root, step);
  fs::create_directory(root / ".tmp-step-00000040.test.r0.host.p1");
  fs::create_directory(root / "step-40");
  fs::create_directory_symlink("step-00000030", root / "step-00000050");
  EXPECT_EQ(test::steps_in(root), (Steps{100000000, 30, 2}));
}

TEST(Directory, LoadsTheNewestWholeCheckpointAndNamesSkippedOnes) {
  const TempDirectory root;
  for (const std::uint64_t step : {1, 2, 3, 4}) save_step(root, step);
  damage(root / "step-00000004", "model/conv1.weight");
  fs::remove(root / "step-00000003/manifest.json");
  const CheckpointDirectory directory(root);
  // Loading must overwrite data from the damaged checkpoint.
  ArraySet loaded = small_model(0).zeros();
  const auto result = directory.load_newest(loaded.targets());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->checkpoint.manifest().step, 2U);
  EXPECT_EQ(loaded, small_model(2));
  EXPECT_THAT(
      result->skipped,
      ElementsAre(AllOf(HasSubstr("step-00000004"), HasSubstr("array 'model/conv1.weight': bytes"),
                        HasSubstr("are damaged: crc32c is")),
                  HasSubstr("'manifest.json' cannot be opened: No such file")));
  const auto verified = directory.newest_verified();
  ASSERT_TRUE(verified);
  EXPECT_EQ(verified->checkpoint.manifest().step, 2U);
  EXPECT_EQ(verified->skipped, result->skipped);
}

TEST(Directory, NoWholeCheckpointIsAnErrorAndNotAFreshStart) {
  const TempDirectory root;
  for (const std::uint64_t step : {1, 2}) damage(save_step(root, step).path, "optim/step");
  EXPECT_THAT(error_of([&] { CheckpointDirectory(root).newest_verified(); }),
              AllOf(HasSubstr("none of the 2 checkpoints"), HasSubstr("step-00000002"),
                    HasSubstr("to start from scratch anyway")));
}

TEST(Directory, ManifestUnderAnotherStepIsNotLoaded) {
  const TempDirectory root;
  save_step(root, 1);
  fs::copy(root / "step-00000001", root / "step-00000009", fs::copy_options::recursive);
  const auto result = CheckpointDirectory(root).newest_verified();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->checkpoint.manifest().step, 1U);
  EXPECT_THAT(result->skipped.at(0), HasSubstr("its manifest says step 1"));
  // A copy can be opened by its path like the original.
  fs::rename(root / "step-00000009", root / "best");
  EXPECT_TRUE(test::holds(Checkpoint::open(root / "best"), small_model(1)));
}

TEST(Directory, ErrorOtherThanDamageIsNotSkipped) {
  const TempDirectory root;
  for (const std::uint64_t step : {1, 2}) save_step(root, step);
  ArraySet other;
  other.add("model/conv1.weight", DType::float32, {40, 1000});
  EXPECT_THROW(static_cast<void>(CheckpointDirectory(root).load_newest(other.targets())),
               MismatchError);
}

TEST(Checkpoint, MismatchesAreListedOnceAndInFull) {
  const TempDirectory root;
  const Checkpoint checkpoint = Checkpoint::open(save_step(root, 1).path);
  ArraySet wrong;
  wrong.add("model/conv1.weight", DType::float32, {40, 999});
  wrong.add("model/conv1.bias", DType::float16, {40});
  wrong.add("model/conv2.weight", DType::float32, {1});
  EXPECT_THAT(error_of([&] { checkpoint.read_into(wrong.targets()); }),
              AllOf(HasSubstr("missing in the checkpoint: 'model/conv2.weight';"),
                    HasSubstr("not expected here: 'model/empty', 'model/fc.weight', 'optim/step', "
                              "'rng/rank-0/cpu';"),
                    HasSubstr("'model/conv1.weight' is float32 [40, 1000] there and float32 "
                              "[40, 999] here, 'model/conv1.bias' is float32 [40] there and "
                              "float16 [40] here;"),
                    HasSubstr("build the same model")));
  ArraySet many;
  for (int i = 0; i < 13; ++i) many.add(fmt::format("x{}", i), DType::int8, {1});
  EXPECT_THAT(error_of([&] { checkpoint.read_into(many.targets(), Match::subset); }),
              HasSubstr("'x9' and 3 more;"));
}

TEST(Checkpoint, DoesNotWriteToTargetsOfTheWrongSize) {
  const TempDirectory root;
  const Checkpoint checkpoint = Checkpoint::open(save_step(root, 1).path);
  std::vector<std::byte> memory(8);
  const MutableArrayView small{"model/conv1.bias", DType::float32, {40}, memory};
  EXPECT_THAT(error_of([&] {
                checkpoint.read_into({&small, 1}, Match::subset);
              }),
              HasSubstr("takes 160 bytes, not 8"));
  const MutableArrayView twice[] = {{"optim/step", DType::int64, {}, memory},
                                    {"optim/step", DType::int64, {}, memory}};
  EXPECT_THAT(error_of([&] { checkpoint.read_into(twice, Match::subset); }),
              HasSubstr("'optim/step' is requested twice"));
}

// Reads sizes that bypass the page cache, to page-aligned memory and to other addresses.
TEST(Checkpoint, LargeArraysReachAnyAddress) {
  constexpr std::size_t kPage = 4096;
  const TempDirectory root;
  ArraySet large;
  large.add("pages", DType::uint8, {1 << 20});
  large.add("odd", DType::uint8, {(1 << 20) + 123});
  save_arrays(root, 1, large);
  const Checkpoint checkpoint = Checkpoint::open(root / "step-00000001");
  for (const ArrayView& array : large.views())
    for (const std::size_t misplaced : {0, 8, 64}) {
      std::vector<std::byte> memory(array.bytes.size() + 2 * kPage, std::byte{0});
      const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
      const auto place = std::span(memory).subspan((kPage - address % kPage) % kPage + misplaced,
                                                   array.bytes.size());
      const MutableArrayView target{array.name, array.dtype, array.shape, place};
      checkpoint.read_into({&target, 1}, Match::subset);
      EXPECT_TRUE(std::ranges::equal(place, array.bytes)) << array.name << " at " << misplaced;
      EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(memory, std::byte{0})), 2 * kPage)
          << "adjacent bytes must not change";
    }
}

TEST(Checkpoint, PartsCanBeRead) {
  const TempDirectory root;
  const Checkpoint checkpoint = Checkpoint::open(save_step(root, 1).path);
  ArraySet expected;
  expected.add("model/fc.weight", DType::bfloat16, {33, 1001}, 1);
  ArraySet loaded = expected.zeros();
  checkpoint.read_into(loaded.targets(), Match::subset);
  EXPECT_EQ(loaded, expected);
  EXPECT_EQ(checkpoint.read("model/empty").shape, (Shape{0, 7}));
  EXPECT_TRUE(checkpoint.read("optim/step").shape.empty());
  EXPECT_THROW(checkpoint.read("model"), MismatchError);
}

TEST(Checkpoint, ProgressCountsEveryByteOnce) {
  const TempDirectory root;
  const Checkpoint checkpoint = Checkpoint::open(save_step(root, 1).path);
  for (const unsigned threads : {1U, 4U}) {
    std::uint64_t last = 0;
    std::uint64_t total = 0;
    checkpoint.verify({threads, [&](std::uint64_t done, std::uint64_t all) {
                         EXPECT_GT(done, last);
                         last = done;
                         total = all;
                       }});
    EXPECT_EQ(last, total);
    EXPECT_GT(total, 200000U);
  }
}

TEST(Checkpoint, ErrorNamesAPathThatIsNotACheckpoint) {
  const TempDirectory top;
  EXPECT_THAT(error_of([&] { Checkpoint::open(top / "missing"); }),
              HasSubstr("missing' is not a checkpoint: No such file"));
  EXPECT_THAT(error_of([&] { Checkpoint::open(top); }), HasSubstr("'manifest.json' cannot"));
  std::ofstream(top / "file") << "x";
  EXPECT_THAT(error_of([&] { Checkpoint::open(top / "file"); }), HasSubstr("Not a directory"));
}

TEST(Load, ListsAgainIfTheListedCheckpointsAreGone) {
  const TempDirectory root(test::On::memory);
  save_step(root, 1);
  // While step 1 is being read, another process saves step 2 and removes step 1.
  bool first = true;
  const ReadOptions options{1, [&](std::uint64_t, std::uint64_t) {
                              if (!std::exchange(first, false)) return;
                              save_step(root, 2);
                              fs::resize_file(root / "step-00000001/model.h5", 9000);
                              fs::remove_all(root / "step-00000001");
                            }};
  test::ArraySet memory = small_model(1).zeros();
  const auto loaded =
      CheckpointDirectory(root).load_newest(memory.targets(), Match::exact, options);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->checkpoint.manifest().step, 2U);
  EXPECT_EQ(memory, small_model(2));
  EXPECT_THAT(loaded->skipped, testing::IsEmpty());
}

}  // namespace
}  // namespace ddp::ckpt
