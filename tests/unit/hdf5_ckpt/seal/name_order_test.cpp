// SPDX-License-Identifier: Apache-2.0
// Which of the checkpoints of a directory is the newest, by the names that programs give them.

#include "hdf5_ckpt/seal/name_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

using test::Names;

// `names` from the newest to the oldest, which is what sorting them must give from any order. Later
// ones were written later, so that the times say the opposite.
void expect_order(Names names) {
  std::vector<NamedCheckpoint> checkpoints;
  for (const std::string& name : names)
    checkpoints.push_back({name, static_cast<std::int64_t>(checkpoints.size())});
  for (std::size_t turn = 0; turn < names.size(); ++turn) {
    std::ranges::rotate(checkpoints, checkpoints.begin() + 1);
    std::vector<NamedCheckpoint> sorted = checkpoints;
    sort_newest_first(sorted);
    Names found;
    for (const NamedCheckpoint& checkpoint : sorted) found.push_back(checkpoint.name);
    EXPECT_EQ(found, names);
  }
}

TEST(NameOrder, FollowsTheNumbersOfEachProgram) {
  expect_order({"checkpoint-1500", "checkpoint-1000", "checkpoint-500"});  // transformers
  expect_order({"global_step1000", "global_step200", "global_step30"});    // DeepSpeed
  expect_order({"iter_0000500", "iter_0000050"});                          // Megatron-LM
  expect_order({"step-1000", "step-999", "step-0"});                       // torchtitan
  expect_order({"epoch=0-step=20.ckpt", "epoch=1-step=10.ckpt"});          // by the step
  expect_order({"loss=0.10-epoch=2.ckpt", "loss=0.90-epoch=1.ckpt"});      // and not by the loss
  expect_order({"model--val_loss=0.5-step=7.0-last", "model--val_loss=0.9-step=6.0-last"});
  expect_order({"7.ckpt", "6.ckpt"});
  expect_order({"step-99999999999999999999999", "step-1844674407370955160", "step-2"});
}

TEST(NameOrder, OfDifferentNamesTheTimesDecide) {
  std::vector<NamedCheckpoint> found = {
      {"epoch=1.ckpt", 30}, {"best.ckpt", 20}, {"last.ckpt", 40}, {"epoch=2.ckpt", 10}};
  sort_newest_first(found);
  Names names;
  for (const NamedCheckpoint& checkpoint : found) names.push_back(checkpoint.name);
  // epoch=2 was copied, and stays before epoch=1.
  EXPECT_EQ(names, (Names{"last.ckpt", "best.ckpt", "epoch=2.ckpt", "epoch=1.ckpt"}));
}

TEST(NameOrder, OfEqualStepsTheTimesDecideToo) {
  std::vector<NamedCheckpoint> found = {{"val_loss=10.34-step=200", 1},
                                        {"val_loss=2.34-step=200", 2}};
  sort_newest_first(found);
  EXPECT_EQ(found.front().name, "val_loss=2.34-step=200");
}

TEST(NameOrder, KnowsWhatLooksLikeACheckpoint) {
  for (const char* name : {"checkpoint-5", "step_7", "Epoch 3_step=9", "global_step10", "ckpt_12"})
    EXPECT_TRUE(is_checkpoint_name(name, true)) << name;
  for (const char* name : {"last.ckpt", "step-500.pt", "epoch_3.pth", "ckpt.12.safetensors"})
    EXPECT_TRUE(is_checkpoint_name(name, false)) << name;
  for (const char* name : {"runs", "version_0", "2024-01-02", "step", "footsteps"})
    EXPECT_FALSE(is_checkpoint_name(name, true)) << name;
  for (const char* name : {"step-500.json", "events.1700", "model.safetensors", "checkpoint-5"})
    EXPECT_FALSE(is_checkpoint_name(name, false)) << name;
}

}  // namespace
}  // namespace ddp::ckpt
