// SPDX-License-Identifier: Apache-2.0
// Which node-local save of an earlier process a run takes over.
#include "ddp_runtime/train/checkpoint/local/local_adoption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kDisks = "the nodes' own disks";
const ckpt::OwnerTag kFirst{"1", 0, "node1", 10};
const ckpt::OwnerTag kSecond{"1", 1, "node1", 20};

ckpt::CheckpointInfo info_after(std::optional<std::uint64_t> parent) {
  ckpt::CheckpointInfo info;
  info.lineage = ckpt::Lineage{"run", parent, {}};
  return info;
}

FoundShard shard(std::uint64_t step, const ckpt::OwnerTag& owner, const std::string& file,
                 std::uint64_t shards = 2) {
  return {{step, owner}, shards, file, 100, {}};
}

FoundShard first_shard(std::uint64_t step, const ckpt::OwnerTag& owner,
                       std::optional<std::uint64_t> parent, std::uint64_t shards = 2) {
  auto first = shard(step, owner, "a.h5", shards);
  first.info = info_after(parent);
  return first;
}

NewestCheckpoint checkpoint(std::uint64_t step, const ckpt::OwnerTag& owner) {
  return {step, owner.text(), ckpt::Lineage{"run", {}, {}}};
}

// Two nodes hold one shard each.
std::vector<std::vector<FoundShard>> save_of(std::uint64_t step, const ckpt::OwnerTag& owner,
                                             std::optional<std::uint64_t> parent) {
  return {{first_shard(step, owner, parent)}, {shard(step, owner, "b.h5")}};
}

// The step that is adopted, or -1.
int adopted(const std::vector<std::vector<FoundShard>>& found,
            const std::optional<NewestCheckpoint>& newest) {
  std::vector<std::string> notes;
  const auto plan = plan_adoption(found, newest, notes, kDisks);
  return plan ? static_cast<int>(plan->save.step) : -1;
}

TEST(Adoption, TellsEachRankWhatItCopies) {
  auto found = save_of(30, kFirst, 20);
  found.insert(found.begin() + 1, std::vector<FoundShard>{});
  std::vector<std::string> notes;
  const auto plan = plan_adoption(found, checkpoint(20, kSecond), notes, kDisks);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->save.step, 30U);
  EXPECT_EQ(plan->save.owner, kFirst);
  EXPECT_EQ(plan->bytes, 200U);
  EXPECT_THAT(plan->files, ElementsAre(ElementsAre("a.h5"), IsEmpty(), ElementsAre("b.h5")));
  EXPECT_THAT(notes, IsEmpty());
}

TEST(Adoption, TakesOnlyWhatContinuesTheNewest) {
  EXPECT_EQ(adopted(save_of(30, kFirst, 20), checkpoint(20, kSecond)), 30);
  // Already there, or older.
  EXPECT_EQ(adopted(save_of(20, kFirst, 10), checkpoint(20, kFirst)), -1);
  EXPECT_EQ(adopted(save_of(20, kFirst, 10), checkpoint(30, kFirst)), -1);
  // The same process copied 20 after it had staged 30, whose parent was still 10.
  EXPECT_EQ(adopted(save_of(30, kFirst, 10), checkpoint(20, kFirst)), 30);
  // Another process saved 20 on another branch.
  EXPECT_EQ(adopted(save_of(30, kFirst, 10), checkpoint(20, kSecond)), -1);
  auto other_run = checkpoint(20, kFirst);
  other_run.lineage->run = "other";
  EXPECT_EQ(adopted(save_of(30, kFirst, 20), other_run), -1);
  other_run.lineage.reset();
  EXPECT_EQ(adopted(save_of(30, kFirst, 20), other_run), -1);
}

TEST(Adoption, BeginsASequence) {
  EXPECT_EQ(adopted(save_of(30, kFirst, std::nullopt), std::nullopt), 30);
  // The checkpoints before it were deleted.
  EXPECT_EQ(adopted(save_of(30, kFirst, 20), std::nullopt), -1);
  auto found = save_of(30, kFirst, 20);
  found[0][0].info->lineage->origins = {{20, 1, "/elsewhere/step-20"}};
  EXPECT_EQ(adopted(found, std::nullopt), 30);
  found[0][0].info->lineage->origins = {{10, 1, "/elsewhere/step-10"}};
  EXPECT_EQ(adopted(found, std::nullopt), -1);
  found[0][0].info->lineage.reset();
  EXPECT_EQ(adopted(found, std::nullopt), -1);
}

TEST(Adoption, NeedsAllShards) {
  const std::vector<std::vector<FoundShard>> one_node = {{first_shard(30, kFirst, 20)}};
  std::vector<std::string> notes;
  EXPECT_FALSE(plan_adoption(one_node, checkpoint(20, kFirst), notes, kDisks));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("hold 1 of the 2 files of a later save, step 30")));
  // The other node's is of another process.
  auto mixed = save_of(30, kFirst, 20);
  mixed[1][0].save.owner = kSecond;
  EXPECT_EQ(adopted(mixed, checkpoint(20, kFirst)), -1);
  // Only the second has come.
  EXPECT_EQ(adopted({{}, {shard(30, kFirst, "b.h5", 1)}}, checkpoint(20, kFirst)), -1);
  // An older one is whole.
  auto found = save_of(25, kFirst, 20);
  found[0].push_back(first_shard(30, kFirst, 20));
  notes.clear();
  const auto plan = plan_adoption(found, checkpoint(20, kFirst), notes, kDisks);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->save.step, 25U);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("step 30")));
  // Nobody needs to know about one that is in the directory already.
  notes.clear();
  EXPECT_FALSE(plan_adoption(found, checkpoint(40, kFirst), notes, kDisks));
  EXPECT_THAT(notes, IsEmpty());
}

// All nodes see the same disk.
TEST(Adoption, CopiesASharedFileOnce) {
  const std::vector<FoundShard> all = {first_shard(30, kFirst, 20), shard(30, kFirst, "b.h5")};
  std::vector<std::string> notes;
  const auto plan = plan_adoption({all, all}, checkpoint(20, kFirst), notes, kDisks);
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->files, ElementsAre(ElementsAre("a.h5", "b.h5"), IsEmpty()));
  EXPECT_EQ(plan->bytes, 200U);
}

}  // namespace
}  // namespace ddp::train
