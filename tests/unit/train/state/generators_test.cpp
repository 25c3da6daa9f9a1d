// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/generators.h"

#include <gtest/gtest.h>

#include "ddp_runtime/comm/p2p/run_ranks.h"
#include "ddp_runtime/train/state/array_views.h"
#include "ddp_runtime/train/state/read_target.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::train {
namespace {

// A run on CPUs continues one that trained on another device, whose generator it has no use for.
TEST(Generators, OfADeviceThatTheRunLacksDoNotKeepItFromLoading) {
  const test::TemporaryDirectory temporary;
  ckpt::CheckpointDirectory directory(temporary.path());
  comm::run_ranks(1, [&](comm::Group& group) {
    const torch::nn::Linear net(2, 2);
    Generators generators(group, *net);
    std::vector<StateArray> arrays;
    generators.collect(arrays);
    const auto expected = torch::rand({8});
    arrays.push_back({"rng/rank-0/xpu", torch::full({16}, 7, torch::kUInt8)});
    const auto owner = ckpt::OwnerTag::of_this_process("test", 0);
    directory.save(1, owner, array_views(arrays), {.epoch = 0, .world_size = 1, .run_id = "run"});

    const auto saved = directory.newest_verified();
    ASSERT_TRUE(saved);
    std::vector<ReadTarget> targets;
    generators.add_targets(saved->checkpoint, targets);
    read_into(targets, saved->checkpoint, ckpt::Match::exact);
    generators.distribute(0);
    EXPECT_TRUE(torch::equal(torch::rand({8}), expected));
  });
}

}  // namespace
}  // namespace ddp::train
