// SPDX-License-Identifier: Apache-2.0
// Misuse of sharded training ends with an error on all ranks: of one rank that does something else
// than the others, and of parameters that have no values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/hooks/compression.h"
#include "tests/unit/parallel/sharded/strategies.h"
#include "tests/unit/parallel/sharded/tower.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;

using OnRank = std::function<void(Tower&, Training&, comm::Group&)>;

// The first error of three ranks, or four if they are pairs.
std::string error_of_towers(const Strategy& strategy, const OnRank& body) {
  const int ranks = strategy.options.hybrid_ranks > 0 ? 4 : 3;
  const auto on_rank = [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    auto training = begin_training(*net, group, strategy);
    body(net, training, group);
  };
  return error_of_ranks(ranks, on_rank);
}

void make_plain_step(Tower& net, Training& training, int batch) {
  step_of_tower(net, *training.replica, *training.optimizer, batch);
}

std::vector<Strategy> strategies_of_towers() {
  return all_strategies({"blocks.*", "spare"});
}

std::vector<Strategy> strategies_with_units() {
  std::vector<Strategy> chosen;
  for (auto& strategy : strategies_of_towers()) {
    if (strategy.has_units()) chosen.push_back(strategy);
  }
  return chosen;
}

// --- A rank that does something else. For more, see tests/ranks/sharded_faults.bats.

TEST(RankThatDiffers, InItsUnits) {
  for (const auto& strategy : strategies_with_units()) {
    SCOPED_TRACE(strategy.name);
    const auto text = error_on_each_of_three_ranks([&](comm::Group& group) {
      auto net = seeded([] { return Tower(); });
      auto mine = strategy;
      if (group.rank() == 1) mine.options.units = {"blocks.*"};
      begin_training(*net, group, mine);
    });
    EXPECT_THAT(text, HasSubstr("units"));
  }
}

TEST(RankThatDiffers, InHowOftenItReduces) {
  const auto text = error_on_each_of_three_ranks([](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    auto mine = all_strategies({"blocks.*"})[2];
    mine.options.reduce_once = group.rank() == 1;
    begin_training(*net, group, mine);
  });
  EXPECT_THAT(text, HasSubstr("reduce_once true"));
}

TEST(RankThatDiffers, InItsStrategy) {
  const auto text = error_on_each_of_three_ranks([](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    const auto strategies = all_strategies({"blocks.*"});
    begin_training(*net, group, strategies[group.rank() == 1 ? 1 : 2]);
  });
  EXPECT_THAT(text, HasSubstr("shard"));
}

// Without gradients nothing compares the gathers, so one in another order must not begin.
TEST(RankThatDiffers, InTheOrderOfAnEvaluation) {
  for (const auto& strategy : strategies_with_units()) {
    for (const bool after_a_step : {false, true}) {
      SCOPED_TRACE(strategy.name + std::to_string(static_cast<int>(after_a_step)));
      const auto text =
          error_of_towers(strategy, [&](Tower& net, Training& training, comm::Group& group) {
            if (after_a_step) make_plain_step(net, training, 0);
            const torch::NoGradGuard no_grad;
            ForwardPasses passes(*net);
            for (int i = 0; i < 3; ++i) {
              passes.begin();
              if (group.rank() == 1 && i == 1) net->calls = {1, 0, 2};
              net->forward(numbers_of(i));
              passes.end();
            }
          });
      EXPECT_THAT(
          text, HasSubstr("the unit 'blocks.0' is called out of turn in a pass of ForwardPasses"));
    }
  }
}

// --- Parameters that have no values, or are changed

TEST(ParametersWithoutValues, AreNamedWhereverTheyAreRead) {
#ifndef NDEBUG
  GTEST_SKIP() << "ReadCheck needs a build with NDEBUG";
#endif
  for (const auto& strategy : strategies_with_units()) {
    for (const bool of_unit : {false, true}) {
      SCOPED_TRACE(strategy.name + std::to_string(static_cast<int>(of_unit)));
      const auto text = error_of_towers(strategy, [&](Tower& net, Training& training, auto&) {
        for (int i = 0; i < 3; ++i) {
          make_plain_step(net, training, i);
          const torch::NoGradGuard no_grad;
          // As a callback that prints norms.
          if (i == 1) (of_unit ? net->spare->weight : net->tokens->weight).abs().sum();
        }
      });
      EXPECT_THAT(text, HasSubstr("aten::abs has read a parameter of"));
    }
  }
}

// A view reads nothing.
TEST(ParametersWithoutValues, MayBeViewed) {
  for (const auto& strategy : strategies_with_units()) {
    EXPECT_EQ(error_of_towers(strategy,
                              [&](Tower& net, Training& training, auto&) {
                                for (int i = 0; i < 3; ++i) {
                                  make_plain_step(net, training, i);
                                  net->spare->weight.detach().view(-1).slice(0, 0, 3);
                                  EXPECT_EQ(net->spare->weight.to(torch::kFloat32).numel(),
                                            kWidth * kWidth);
                                }
                              }),
              "");
  }
}

// One rank's look reaches all.
TEST(ParametersWithoutValues, AreNamedIfOneRankReadsThem) {
#ifndef NDEBUG
  GTEST_SKIP() << "ReadCheck needs a build with NDEBUG";
#endif
  for (const auto& strategy : strategies_with_units()) {
    const auto text =
        error_of_towers(strategy, [&](Tower& net, Training& training, comm::Group& group) {
          for (int i = 0; i < 3; ++i) {
            make_plain_step(net, training, i);
            if (group.rank() == 1) net->spare->weight.norm();
          }
        });
    EXPECT_THAT(text, HasSubstr("has read a parameter of unit 'spare' outside of its call"));
  }
}

TEST(ParametersWithoutValues, AreNamedInLaterSteps) {
#ifndef NDEBUG
  GTEST_SKIP() << "ReadCheck needs a build with NDEBUG";
#endif
  for (const auto& strategy : strategies_with_units()) {
    if (!strategy.options.reshard_after_forward) continue;  // they still have values
    SCOPED_TRACE(strategy.name);
    const auto text = error_of_towers(strategy, [&](Tower& net, Training& training, auto&) {
      for (int i = 0; i < 3; ++i) {
        auto step = training.replica->begin_step();
        auto loss = loss_of_tower(net->forward(numbers_of(i)), i);
        // A penalty on weights that have no values any more.
        if (i == 2) loss = loss + net->blocks[0]->parameters()[1].square().sum();
        step.backward(loss);
        step.apply(*training.optimizer);
      }
    });
    EXPECT_THAT(text, HasSubstr("has read a parameter of unit 'blocks.0' outside of its call"));
  }
}

TEST(ParametersThatAreChanged, BetweenForwardAndBackwardAreNamed) {
  for (const auto& strategy : strategies_of_towers()) {
    SCOPED_TRACE(strategy.name);
    const auto text = error_of_towers(strategy, [&](Tower& net, Training& training, auto&) {
      for (int i = 0; i < 2; ++i) {
        auto step = training.replica->begin_step();
        const auto loss = loss_of_tower(net->forward(numbers_of(i)), i);
        const torch::NoGradGuard no_grad;
        if (i == 1) net->tokens->weight.mul_(0.5);
        const at::AutoGradMode with_gradients(true);
        step.backward(loss);
        step.apply(*training.optimizer);
      }
    });
    EXPECT_THAT(text, testing::AnyOf(HasSubstr("inplace operation"),
                                     HasSubstr("was changed outside of the optimizer")));
  }
}

// --- What does not go together

TEST(ShardedRefusals, AreTheSameSentenceOnAllRanks) {
  const auto refused = [](const std::function<void(ShardOptions&)>& change) {
    std::vector<std::string> texts;
    for (const auto& strategy : strategies_of_towers()) {
      if (strategy.options.shard == Shard::optimizer) continue;
      if (!strategy.is_possible_with(3)) continue;
      auto changed = strategy;
      change(changed.options);
      texts.push_back(error_on_each_of_three_ranks([&](comm::Group& group) {
        auto net = seeded([] { return Tower(); });
        begin_training(*net, group, changed);
      }));
    }
    return texts;
  };
  EXPECT_THAT(refused([](ShardOptions& options) { options.data_parallel.hook = hooks::bf16; }),
              testing::Each(HasSubstr("does not go together with a communication hook")));
  EXPECT_THAT(refused([](ShardOptions& options) { options.data_parallel.static_graph = true; }),
              testing::Each(HasSubstr("does not go together with static_graph")));
}

// Two units read one weight.
struct ReaderImpl : torch::nn::Module {
  explicit ReaderImpl(torch::Tensor shared) {
    weight = register_parameter("weight", std::move(shared));
  }
  torch::Tensor weight;
};

TEST(ShardedRefusals, NameAWeightOfTwoUnits) {
  if (on_device()) GTEST_SKIP() << "to() gives each unit its own";
  const auto text = error_on_each_of_three_ranks([](comm::Group& group) {
    const auto shared = torch::ones({3, 4});
    torch::nn::ModuleList list(std::make_shared<ReaderImpl>(shared),
                               std::make_shared<ReaderImpl>(shared));
    const ShardedDataParallel replica(*list, group, parameters_in({"*"}));
  });
  EXPECT_THAT(text, HasSubstr("the parameter '0.weight' of unit '0' is also '1.weight' of unit"));
}

// The error of making a replica, the same on three ranks.
std::string error_of_dividing(const std::function<std::shared_ptr<torch::nn::Module>()>& make,
                              const Strategy& strategy) {
  return error_on_each_of_three_ranks([&](comm::Group& group) {
    const auto net = seeded(make);
    begin_training(*net, group, strategy);
  });
}

TEST(ShardedRefusals, NameParametersThatCannotBeDivided) {
  if (on_device()) GTEST_SKIP() << "the simulated device lacks some of these";
  const auto with_parameters = [](std::vector<torch::Tensor> parameters) {
    auto part = std::make_shared<torch::nn::Module>();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      part->register_parameter("p" + std::to_string(i), parameters[i]);
    }
    torch::nn::ModuleList list(part);
    return std::shared_ptr<torch::nn::Module>(list.ptr());
  };
  for (const auto& strategy : all_strategies({"*"})) {
    if (strategy.options.shard == Shard::optimizer || !strategy.is_possible_with(3)) continue;
    SCOPED_TRACE(strategy.name);
    EXPECT_THAT(error_of_dividing(
                    [] {
                      const auto options = torch::nn::EmbeddingOptions(4, 2).sparse(true);
                      torch::nn::ModuleList list{torch::nn::Embedding(options)};
                      return std::shared_ptr<torch::nn::Module>(list.ptr());
                    },
                    strategy),
                HasSubstr("parameter '0.weight' has sparse gradients, which ShardedDataParallel"));
    EXPECT_THAT(error_of_dividing(
                    [&] {
                      const auto all = torch::ones({6});
                      return with_parameters({all.narrow(0, 0, 4), all.narrow(0, 2, 4)});
                    },
                    strategy),
                HasSubstr("parameters share memory, which ShardedDataParallel would divide"));
    EXPECT_THAT(error_of_dividing(
                    [&] {
                      return with_parameters({torch::ones({2, 4}).narrow(1, 0, 3)});
                    },
                    strategy),
                HasSubstr("parameter '0.p0', of shape [2, 3], cannot be divided among the ranks"));
  }
}

TEST(ShardedRefusals, NameOptimizersThatCannotBeDivided) {
  const auto refused = [](const Strategy& strategy, const MakeOptimizer& make) {
    return error_on_each_of_three_ranks([&](comm::Group& group) {
      auto net = seeded([] { return Tower(); });
      begin_training(*net, group, strategy, make);
    });
  };
  for (const auto& strategy : strategies_of_towers()) {
    if (!strategy.is_possible_with(3)) continue;
    SCOPED_TRACE(strategy.name);
    EXPECT_THAT(refused(strategy,
                        [](std::vector<torch::Tensor> parameters) {
                          return std::make_unique<torch::optim::Adagrad>(parameters);
                        }),
                HasSubstr("ShardedOptimizer divides SGD, Adam, AdamW and RMSprop"));
    EXPECT_THAT(refused(strategy,
                        [](std::vector<torch::Tensor> parameters) {
                          return std::make_unique<torch::optim::LBFGS>(parameters);
                        }),
                HasSubstr("ShardedOptimizer divides SGD, Adam, AdamW and RMSprop"));
    EXPECT_THAT(refused(strategy,
                        [](std::vector<torch::Tensor> parameters) {
                          auto used = std::make_unique<torch::optim::AdamW>(parameters);
                          for (auto& p : parameters) p.mutable_grad() = torch::zeros_like(p);
                          used->step();
                          return used;
                        }),
                HasSubstr("the optimizer for ShardedOptimizer has made steps already"));
  }
}

TEST(ShardedRefusals, NameHybridRanksOfSeveralMachines) {
  if (on_device()) GTEST_SKIP() << "GPUs have no memory in common";
  const auto text = error_of([] {
    test::run_ranks(
        4,
        [](comm::Group& group) {
          auto net = seeded([] { return Tower(); });
          begin_training(*net, group, strategies_of_towers().back());
        },
        {.limits = {.timeout = std::chrono::seconds(10)}}, [](int rank) { return (rank + 1) / 2; });
  });
  EXPECT_THAT(text, HasSubstr("makes ranks of several nodes have parameters in common"));
}

}  // namespace
}  // namespace ddp::test
