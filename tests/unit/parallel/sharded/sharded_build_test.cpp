// SPDX-License-Identifier: Apache-2.0
// Models that are divided while they are built.
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "tests/unit/parallel/sharded/tower.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;

// All but the tokens are divided.
Tower built_in_parts(ShardedBuild& build) {
  auto net = seeded([] { return Tower(); });
  for (const auto& block : *net->blocks) build.add(*block);
  build.add(*net->spare);
  return net;
}

ShardOptions options_with(Shard shard, ShardedBuild* build) {
  auto options = in_units();
  options.shard = shard;
  if (shard == Shard::gradients) options.units.clear();
  options.data_parallel.buckets = {40, 300};
  options.build = build;
  return options;
}

// The values after two steps.
Values trained(comm::Group& group, Tower& net, const ShardOptions& options) {
  ShardedDataParallel replica(*net, group, options);
  ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1), replica);
  for (int i = 0; i < 2; ++i) step_of_tower(net, replica, optimizer, 2 * i + group.rank());
  const WholeParameters whole(replica);
  return values_of(*net);
}

TEST(ShardedBuilds, TrainLikeModelsThatAreBuiltWhole) {
  for (const int ranks : {1, 2, 3}) {
    for (const auto shard : {Shard::gradients, Shard::parameters, Shard::hybrid}) {
      test::run_ranks(ranks, [&](comm::Group& group) {
        auto whole = seeded([] { return Tower(); });
        const auto expected = trained(group, whole, options_with(shard, nullptr));
        auto build = std::make_unique<ShardedBuild>(group);
        auto net = built_in_parts(*build);
        EXPECT_EQ(is_without_memory(net->spare->weight), ranks > 1);
        // A part may be frozen, and gets another memory than when it was built.
        const auto values = trained(group, net, options_with(shard, build.get()));
        for (const auto& [name, value] : expected) {
          EXPECT_TRUE(torch::equal(values.at(name), value)) << name;
        }
      });
    }
  }
}

TEST(ShardedBuilds, TakeTheValuesOfRankZero) {
  test::run_ranks(3, [&](comm::Group& group) {
    const auto expected = values_of(*seeded([] { return Tower(); }));
    ShardedBuild build(group);
    auto net = seeded([] { return Tower(); });
    if (group.rank() > 0) {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.fill_(group.rank());
    }
    build.add(*net->blocks);
    build.add(*net->spare);
    build.add(*net->blocks);  // does nothing
    for (auto& parameter : net->blocks[1]->parameters()) parameter.requires_grad_(false);
    ShardedDataParallel replica(*net, group, options_with(Shard::parameters, &build));
    const WholeParameters whole(replica);
    for (const auto& [name, value] : values_of(*net)) {
      EXPECT_TRUE(torch::equal(value, expected.at(name))) << name;
    }
  });
}

TEST(ShardedBuilds, ArePartsOfOneModel) {
  const auto text = error_of([] {
    test::run_ranks(2, [&](comm::Group& group) {
      ShardedBuild build(group);
      torch::nn::Linear part(4, 3 + group.rank());
      build.add(*part);
    });
  });
  EXPECT_THAT(text, HasSubstr("weight"));
  EXPECT_THAT(text, HasSubstr("rank 1"));
}

TEST(ShardedBuilds, HaveNoIgnoredParameters) {
  test::run_ranks(2, [&](comm::Group& group) {
    ShardedBuild build(group);
    auto net = built_in_parts(build);
    auto options = options_with(Shard::parameters, &build);
    options.data_parallel.ignore = {"spare.bias"};
    EXPECT_THAT(error_of([&] { const ShardedDataParallel replica(*net, group, options); }),
                HasSubstr("'spare.bias' is ignored"));
  });
}

struct TwiceImpl : torch::nn::Module {
  TwiceImpl() {
    const auto all = torch::ones({4, 2});
    register_parameter("a", all.narrow(0, 0, 3));
    register_parameter("b", all.narrow(0, 1, 3));
  }
};
TORCH_MODULE(Twice);

TEST(ShardedBuilds, HaveNoParametersThatShareMemory) {
  test::run_ranks(2, [&](comm::Group& group) {
    ShardedBuild build(group);
    Twice twice;
    EXPECT_THAT(error_of([&] { build.add(*twice); }), HasSubstr("parameters share memory"));
  });
}

TEST(ShardedBuilds, MustBeGiven) {
  test::run_ranks(2, [&](comm::Group& group) {
    ShardedBuild build(group);
    auto net = built_in_parts(build);
    EXPECT_THAT(error_of([&] { const DistributedDataParallel replica(*net, group); }),
                HasSubstr("'blocks.0.scale' has no values, because ranks have divided it"));
    EXPECT_THAT(error_of([&] {
                  const ShardedDataParallel replica(*net, group,
                                                    options_with(Shard::parameters, nullptr));
                }),
                HasSubstr("set ShardOptions::build to the ShardedBuild that has it"));
  });
}

}  // namespace
}  // namespace ddp::test
