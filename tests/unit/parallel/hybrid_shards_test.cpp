// SPDX-License-Identifier: Apache-2.0
// Shard::hybrid: which ranks divide, and parameters that the ranks of a node have in common.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/sharded/parameter_shards.h"
#include "ddp_runtime/parallel/sharded/shard_groups.h"
#include "tests/unit/parallel/tower.h"

namespace ddp::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kWhile = std::chrono::milliseconds(50);

ShardOptions hybrid(int ranks = 0) {
  auto options = in_units();
  options.shard = Shard::hybrid;
  options.hybrid_ranks = ranks;
  return options;
}

using OnHybridTower = std::function<void(Tower&, ShardedDataParallel&, comm::Group&)>;

void with_hybrid_tower(int ranks, const ShardOptions& options, const OnHybridTower& body) {
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    ShardedDataParallel replica(*net, group, options);
    body(net, replica, group);
  });
}

void backward_of_tower(Tower& net, GradientStep& step, int batch) {
  step.backward(loss_of_tower(net->forward(numbers_of(batch)), batch));
}

// Takes long on one rank.
struct SlowSgd : torch::optim::SGD {
  SlowSgd(std::vector<torch::Tensor> parameters, bool is_slow)
      : SGD(std::move(parameters), torch::optim::SGDOptions(0.1)), slow(is_slow) {}
  torch::Tensor step(LossClosure closure = nullptr) override {
    if (slow) std::this_thread::sleep_for(kWhile);
    return SGD::step(std::move(closure));
  }
  bool slow;
};

TEST(HybridGroups, AreThoseOfMachines) {
  EXPECT_THAT(machines_of(std::vector<std::string>{"a", "a", "b", "b"}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(machines_of(std::vector<std::string>{"b", "a", "b", "a"}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(error_of([] {
                machines_of(std::vector<std::string>{"a", "a", "a", "b", "b"});
              }),
              HasSubstr("the node of rank 0 has 3 ranks and that of rank 3 has 2"));
}

TEST(HybridGroups, OfRanksInARow) {
  test::run_ranks(4, [&](comm::Group& group) {
    const auto groups = groups_by_machine(group, 2);
    EXPECT_EQ(groups.sharing.world_rank(0), group.rank() / 2 * 2);
    EXPECT_EQ(groups.across->world_rank(0), group.rank() % 2);
    EXPECT_THAT(groups.savers, ElementsAre(0, 1));
    EXPECT_EQ(groups_by_machine(group, 4).across, nullptr);
    EXPECT_THAT(error_of([&] { groups_by_machine(group, 3); }),
                HasSubstr("hybrid_ranks is 3, which does not divide the number of ranks, 4"));
  });
}

TEST(HybridGroups, SaveEachPartOnce) {
  with_hybrid_tower(4, hybrid(2), [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
    const auto& shards = replica.shards();
    std::size_t saved[2] = {0, 0};
    for (const auto& parameter : net->parameters()) {
      const auto division = division_of(shards, find_place(shards.flats(), parameter).value());
      ASSERT_EQ(division.saved.size(), 4U);
      EXPECT_EQ(division.saved[0] + division.saved[1], static_cast<std::size_t>(parameter.numel()));
      EXPECT_EQ(division.saved[2] + division.saved[3], 0U);
      EXPECT_EQ(division.first, group.rank() % 2 == 0 ? 0 : division.saved[0]);
      for (const int rank : {0, 1}) saved[rank] += division.saved[static_cast<std::size_t>(rank)];
    }
    EXPECT_GT(saved[0], 0U);
    EXPECT_GT(saved[1], 0U);
  });
}

TEST(CommonParameters, ExistOncePerNode) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  std::atomic<void*> address = nullptr;
  with_hybrid_tower(4, hybrid(2), [&](Tower& net, ShardedDataParallel&, comm::Group& group) {
    if (group.rank() == 0) address = net->blocks[1]->parameters()[0].data_ptr();
    group.barrier().wait();
    EXPECT_EQ(address == net->blocks[1]->parameters()[0].data_ptr(), group.rank() < 2);
    group.barrier().wait();
  });
}

TEST(CommonParameters, AreNotUpdatedWhileARankReadsThem) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  with_hybrid_tower(2, hybrid(), [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
    for (int i = 0; i < 2; ++i) {  // in the first step, the optimizer compares the ranks
      auto step = replica.begin_step();
      backward_of_tower(net, step, group.rank());
      if (group.rank() == 1) {
        const auto before = values_of(*net);
        std::this_thread::sleep_for(kWhile);
        const auto after = values_of(*net);
        for (const auto& [name, value] : before) EXPECT_TRUE(torch::equal(value, after.at(name)));
      }
      step.apply(optimizer);
    }
  });
}

TEST(CommonParameters, AreReadWhenAllRanksHaveUpdatedThem) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  with_hybrid_tower(2, hybrid(), [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
    ShardedOptimizer optimizer(std::make_unique<SlowSgd>(net->parameters(), group.rank() == 1),
                               replica);
    auto step = replica.begin_step();
    backward_of_tower(net, step, group.rank());
    step.apply(optimizer);
    const auto after = values_of(*net);
    group.barrier().wait();
    for (const auto& [name, value] : values_of(*net)) {
      EXPECT_TRUE(torch::equal(value, after.at(name))) << name;
    }
    group.barrier().wait();
  });
}

TEST(CommonParameters, AreChangedInCopies) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  with_hybrid_tower(3, hybrid(), [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
    const auto expected = values_of(*net);
    const torch::NoGradGuard no_grad;
    {
      const WholeParameters whole(replica);
      net->tokens->weight.mul_(2);  // is lost
    }
    EXPECT_TRUE(torch::equal(net->tokens->weight, expected.at("tokens.weight")));
    group.barrier().wait();
    if (group.rank() == 1) std::this_thread::sleep_for(kWhile);
    {
      WholeParameters whole(replica);
      for (const auto& [name, value] : values_of(*net)) {
        EXPECT_TRUE(torch::equal(value, expected.at(name))) << name;
      }
      net->tokens->weight.mul_(2);
      whole.keep_changes();
    }
    EXPECT_TRUE(torch::equal(net->tokens->weight, 2 * expected.at("tokens.weight")));
    replica.begin_step();
  });
}

TEST(CommonParameters, ThatAreChangedInPlaceAreNamed) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  for (const bool before_step : {true, false}) {
    const auto text = error_of([&] {
      with_hybrid_tower(2, hybrid(),
                        [&](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
                          ShardedOptimizer optimizer(
                              std::make_unique<torch::optim::SGD>(net->parameters(), 0.1), replica);
                          const auto clamp = [&] {
                            const torch::NoGradGuard no_grad;
                            net->spare->weight.clamp_(-1, 1);
                          };
                          for (int i = 0; i < 2; ++i) {
                            auto step = replica.begin_step();
                            backward_of_tower(net, step, group.rank());
                            if (i == 1 && !before_step) clamp();
                            step.apply(optimizer);
                            if (before_step) clamp();
                          }
                        });
    });
    EXPECT_THAT(text, HasSubstr("parameter 'spare.weight' was changed outside of the optimizer"));
  }
}

}  // namespace
}  // namespace ddp::test
