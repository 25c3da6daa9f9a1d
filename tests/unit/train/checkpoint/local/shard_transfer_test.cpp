// SPDX-License-Identifier: Apache-2.0
// Copies of one node on their way to another; each rank has a store of its own.
#include "ddp_runtime/train/checkpoint/local/shard_transfer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/p2p/run_ranks.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

const ckpt::OwnerTag kSender{"1", 0, "node1", 10};

class ShardTransferTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "shard_transfer_test_XXXXXX";
    base_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(base_); }

  ckpt::LocalStore store_of(int rank) const {
    return {base_ / std::to_string(rank), "0123456789abcdef", base_ / "ck"};
  }

  // Larger than one message.
  ckpt::LocalShard write(ckpt::LocalStore& store, std::uint64_t step) const {
    std::vector<float> values(5'000'000);
    std::iota(values.begin(), values.end(), 0.0F);
    const ckpt::ArrayView array{
        "a", ckpt::DType::float32, {values.size()}, std::as_bytes(std::span(values)), {}};
    return store.write({step, kSender}, 1, "model.h5", {&array, 1}, nlohmann::json::object(),
                       ckpt::CheckpointInfo{});
  }

  fs::path base_;
};

TEST_F(ShardTransferTest, RankZeroLearnsWhatNodesHave) {
  comm::run_ranks(3, [&](comm::Group& group) {
    auto store = store_of(group.rank());
    std::vector<ckpt::LocalShard> mine;
    if (group.rank() == 2) mine = {write(store, 30)};
    const auto found = collect_found(group, {0, 2}, mine);
    if (group.rank() != 0) {
      EXPECT_TRUE(found.empty());
      return;
    }
    ASSERT_EQ(found.size(), 3U);
    EXPECT_TRUE(found[0].empty() && found[1].empty());
    ASSERT_EQ(found[2].size(), 1U);
    EXPECT_EQ(found[2][0].save.step, 30U);
    EXPECT_EQ(found[2][0].file, "model.h5");
    EXPECT_TRUE(found[2][0].info);
  });
}

TEST_F(ShardTransferTest, AShardArrivesWhole) {
  comm::run_ranks(2, [&](comm::Group& group) {
    auto store = store_of(group.rank());
    if (group.rank() == 1) return send_shard(group, 0, store, write(store, 30));
    const auto received = receive_shard(group, 1, store);
    EXPECT_EQ(received.problem, "");
    store.open({&*received.shard, 1}).verify();
    std::vector<std::string> notes;
    EXPECT_EQ(store.list(notes).size(), 1U);
  });
}

// Neither side waits for ever.
TEST_F(ShardTransferTest, AFileThatCannotBeReadArrivesDamaged) {
  comm::run_ranks(2, [&](comm::Group& group) {
    auto store = store_of(group.rank());
    if (group.rank() == 1) {
      const auto shard = write(store, 30);
      fs::remove(store.file_of(shard));
      return send_shard(group, 0, store, shard);
    }
    const auto received = receive_shard(group, 1, store);
    EXPECT_EQ(received.problem, "");
    EXPECT_THROW(store.open({&*received.shard, 1}).verify(), std::exception);
  });
}

TEST_F(ShardTransferTest, AStoreThatCannotBeWrittenIsToldAfterAllHasCome) {
  comm::run_ranks(2, [&](comm::Group& group) {
    auto store = store_of(group.rank());
    if (group.rank() == 1) return send_shard(group, 0, store, write(store, 30));
    fs::remove_all(base_ / "0");
    std::ofstream(base_ / "0") << "no directory";
    const auto received = receive_shard(group, 1, store);
    EXPECT_NE(received.problem, "");
  });
}

}  // namespace
}  // namespace ddp::train
