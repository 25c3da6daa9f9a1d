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

#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"
#include "ddp_runtime/parallel/sharded/plan/shard_groups.h"
#include "tests/unit/parallel/sharded/tower.h"

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
    EXPECT_THAT(groups.nodes, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
    EXPECT_EQ(groups_by_machine(group, 4).across, nullptr);
    EXPECT_THAT(error_of([&] { groups_by_machine(group, 3); }),
                HasSubstr("hybrid_ranks is 3, which does not divide the number of ranks, 4"));
  });
}

TEST(HybridGroups, SaveEachPartOnce) {
  auto options = hybrid(2);
  options.data_parallel.buckets = {40, 300};
  with_sharded_tower(4, options, [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
    const auto& shards = replica.shards();
    std::vector<std::size_t> saved(4);
    for (const auto& parameter : net->parameters()) {
      const auto division = division_of(shards, find_place(shards.flats(), parameter).value());
      ASSERT_EQ(division.saved.size(), 4U);
      std::size_t all = 0;
      for (std::size_t rank = 0; rank < 4; ++rank) {
        saved[rank] += division.saved[rank];
        all += division.saved[rank];
      }
      EXPECT_EQ(all, static_cast<std::size_t>(parameter.numel()));
      const auto of_first_part = division.saved[0] + division.saved[2];
      EXPECT_EQ(division.first, group.rank() % 2 == 0 ? 0 : of_first_part);
    }
    for (const auto elements : saved) EXPECT_GT(elements, 0U);
  });
}

TEST(HybridGroups, ThatDriftApartAreNamed) {
  auto options = hybrid(2);
  options.data_parallel.check_parameters_every = 2;
  const auto text = error_of([&] {
    with_sharded_tower(4, options,
                       [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
                         ShardedOptimizer optimizer(
                             std::make_unique<torch::optim::SGD>(net->parameters(), 0.1), replica);
                         {
                           WholeParameters whole(replica);
                           const torch::NoGradGuard no_grad;
                           // Of the second rank of a node: the first one hears of it.
                           if (group.rank() >= 2) net->spare->weight[kWidth - 1].add_(1);
                           whole.keep_changes();
                         }
                         for (int i = 0; i < 3; ++i) {
                           step_of_tower(net, replica, optimizer, group.rank());
                         }
                       });
  });
  EXPECT_THAT(text, HasSubstr("the parameters are no longer the same on all ranks"));
}

TEST(HybridGroups, OfSingleRanksDivideNothing) {
  EXPECT_THAT(error_of([] { require_several_ranks(std::vector<int>{0}); }),
              HasSubstr("each node has one rank"));
}

TEST(CommonParameters, ExistOncePerNode) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  std::atomic<void*> address = nullptr;
  with_sharded_tower(4, hybrid(2), [&](Tower& net, ShardedDataParallel&, comm::Group& group) {
    if (group.rank() == 0) address = net->blocks[1]->parameters()[0].data_ptr();
    group.barrier().wait();
    EXPECT_EQ(address == net->blocks[1]->parameters()[0].data_ptr(), group.rank() < 2);
    group.barrier().wait();
  });
}

TEST(CommonParameters, AreNotUpdatedWhileARankReadsThem) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  with_sharded_tower(2, hybrid(), [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
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
      } else {
        std::this_thread::sleep_for(kWhile / 2);  // until the other one has read once
      }
      step.apply(optimizer);
    }
  });
}

TEST(CommonParameters, AreReadWhenAllRanksHaveUpdatedThem) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  with_sharded_tower(2, hybrid(), [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
    ShardedOptimizer optimizer(std::make_unique<SlowSgd>(net->parameters(), group.rank() == 1),
                               replica);
    step_of_tower(net, replica, optimizer, group.rank());
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
  with_sharded_tower(3, hybrid(), [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
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
      replica.require_same_parameters();  // as before a checkpoint
    }
    EXPECT_TRUE(torch::equal(net->tokens->weight, 2 * expected.at("tokens.weight")));
    replica.begin_step();
  });
}

TEST(CommonParameters, HaveNoValuesAfterTheirReplica) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  test::run_ranks(2, [](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    { const ShardedDataParallel replica(*net, group, hybrid()); }
    EXPECT_EQ(net->spare->weight.storage().data_ptr().get(), nullptr);
  });
}

TEST(CommonParameters, AreNotWrittenInForward) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  test::run_ranks(2, [](comm::Group& group) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).max_norm(1.0));
    EXPECT_THAT(error_of([&] { const ShardedDataParallel replica(*table, group, hybrid()); }),
                HasSubstr("has a max_norm"));
  });
}

TEST(CommonParameters, ThatAreChangedInPlaceAreNamed) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  enum class When { before_step, before_update, before_look, before_save };
  for (const auto when :
       {When::before_step, When::before_update, When::before_look, When::before_save}) {
    const int steps = when == When::before_save ? 1 : 2;  // the next step would find it, too
    const auto text = error_of([&] {
      with_sharded_tower(
          2, hybrid(), [&](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
            ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                                       replica);
            const auto clamp = [&] {
              const torch::NoGradGuard no_grad;
              net->spare->weight.clamp_(-1, 1);
            };
            for (int i = 0; i < steps; ++i) {
              auto step = replica.begin_step();
              backward_of_tower(net, step, group.rank());
              if (i == 1 && when == When::before_update) clamp();
              step.apply(optimizer);
              if (when != When::before_update) clamp();
              if (when == When::before_look) const WholeParameters whole(replica);
              if (when == When::before_save) replica.require_same_parameters();
            }
          });
    });
    EXPECT_THAT(text, HasSubstr("parameter 'spare.weight' was changed outside of the optimizer"));
  }
}

}  // namespace
}  // namespace ddp::test
