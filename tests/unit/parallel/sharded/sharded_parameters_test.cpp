// SPDX-License-Identifier: Apache-2.0
// When sharded parameters have values, and what happens outside of steps, after errors, and if they
// are misused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/parallel/sharded/tower.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;

std::size_t bytes_with_memory(const torch::nn::Module& module) {
  std::size_t bytes = 0;
  for (const auto& p : module.parameters()) {
    if (p.storage().data_ptr().get() != nullptr) bytes += p.nbytes();
  }
  return bytes;
}

TEST(ShardedParameters, HaveMemoryOnlyWhileTheyAreUsed) {
  with_sharded_tower(
      2, in_units(), [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
        ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                                   replica);
        EXPECT_EQ(bytes_with_memory(*net), 0U);
        for (int i = 0; i < 3; ++i) {
          auto step = replica.begin_step();
          EXPECT_EQ(bytes_with_memory(*net), net->tokens->weight.nbytes());
          const auto loss = loss_of_tower(net->forward(numbers_of(group.rank())), group.rank());
          std::size_t of_spare = 0;
          for (const auto& p : net->spare->parameters()) of_spare += p.nbytes();
          // The last unit stays for its backward.
          EXPECT_EQ(bytes_with_memory(*net), net->tokens->weight.nbytes() + of_spare);
          step.backward(loss);
          EXPECT_EQ(bytes_with_memory(*net), 0U);
          for (const auto& p : net->parameters()) EXPECT_FALSE(p.grad().defined());
          step.apply(optimizer);
        }
      });
}

TEST(ShardedParameters, AreWholeOnRequest) {
  with_sharded_tower(3, in_units(), [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
    const auto expected = values_of(*seeded([] { return Tower(); }));
    {
      const WholeParameters whole(replica);
      for (const auto& [name, value] : values_of(*net)) {
        EXPECT_TRUE(torch::equal(value, expected.at(name))) << name;
      }
      const torch::NoGradGuard no_grad;
      net->tokens->weight.fill_(7);  // is lost
    }
    EXPECT_EQ(bytes_with_memory(*net), 0U);
    {
      WholeParameters whole(replica);
      EXPECT_TRUE(torch::equal(net->tokens->weight.cpu(), expected.at("tokens.weight")));
      const torch::NoGradGuard no_grad;
      net->spare->weight.fill_(3);
      whole.keep_changes();
    }
    const WholeParameters whole(replica);
    EXPECT_TRUE(torch::all(net->spare->weight.cpu() == 3).item<bool>());
  });
}

// As in an evaluation.
TEST(ShardedParameters, PassForwardBetweenSteps) {
  with_sharded_tower(3, in_units(),
                     [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
                       torch::Tensor expected;
                       const torch::NoGradGuard no_grad;
                       {
                         const WholeParameters whole(replica);
                         expected = net->forward(numbers_of(4));
                       }
                       ForwardPasses passes(*net);
                       for (int i = 0; i < 3; ++i) {
                         passes.begin();
                         // Rank 1 has a batch less, and rank 2 has none.
                         if (i < 3 - group.rank() - (group.rank() == 2 ? 1 : 0)) {
                           EXPECT_TRUE(torch::equal(net->forward(numbers_of(4)), expected));
                         }
                         passes.end();
                       }
                     });
}

std::string error_with(
    const ShardOptions& options,
    const OnShardedTower& body = [](Tower&, ShardedDataParallel&, comm::Group&) {}) {
  return error_on_each_of_three_ranks([&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    ShardedDataParallel replica(*net, group, options);
    body(net, replica, group);
  });
}

TEST(ShardedMisuse, OptionsThatDoNotGoTogether) {
  EXPECT_THAT(error_with(parameters_in({})), HasSubstr("need units"));
  EXPECT_THAT(error_with(parameters_in({"layers.*"})),
              HasSubstr("'layers.*' names no module with parameters"));
  auto options = in_units();
  options.shard = Shard::gradients;
  EXPECT_THAT(error_with(options), HasSubstr("units are for Shard::parameters"));
  options.shard = Shard::optimizer;
  EXPECT_THAT(error_with(options), HasSubstr("use DistributedDataParallel, with a"));
  options = in_units();
  options.data_parallel.static_graph = true;
  EXPECT_THAT(error_with(options), HasSubstr("does not go together with static_graph"));
  options = in_units();
  options.data_parallel.allow_unused = true;
  if (on_device()) {
    EXPECT_THAT(error_with(options), HasSubstr("together with allow_unused yet"));
  }
}

TEST(ShardedMisuse, OptimizersThatDoNotKnowTheShards) {
  const auto text = HasSubstr("needs a ShardedOptimizer that was made with it");
  EXPECT_THAT(error_with(in_units(),
                         [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
                           torch::optim::SGD plain(net->parameters(), 0.1);
                           step_of_tower(net, replica, plain, 1);
                         }),
              text);
  EXPECT_THAT(error_with(in_units(),
                         [](Tower&, ShardedDataParallel& replica, comm::Group&) {
                           torch::nn::Linear other(2, 2);
                           ShardedOptimizer wrong(
                               std::make_unique<torch::optim::SGD>(other->parameters(), 0.1),
                               replica);
                         }),
              HasSubstr("parameter 1 of the optimizer, of shape [2, 2], is not one of the"));
}

TEST(ShardedMisuse, UnitsThatAreNotCalledAsUnitsAreNamed) {
#ifndef NDEBUG
  GTEST_SKIP() << "ReadCheck needs a build with NDEBUG";
#endif
  EXPECT_THAT(error_with(in_units(),
                         [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
                           auto step = replica.begin_step();
                           auto x = net->tokens(numbers_of(1));
                           x = unit(net->blocks->ptr<BlockImpl>(0))(x);
                           x = net->blocks->ptr<BlockImpl>(1)->forward(x);
                           step.backward(loss_of_tower(torch::linear(x, net->tokens->weight), 1));
                         }),
              HasSubstr("has read a parameter of unit 'blocks.1' outside of its call, when it has "
                        "no values; call the module as ddp::unit(module)(arguments)"));
  EXPECT_THAT(error_with(in_units(),
                         [](Tower& net, ShardedDataParallel&, comm::Group&) {
                           const torch::NoGradGuard no_grad;
                           ForwardPasses passes(*net);
                           passes.begin();
                           net->spare(net->tokens(numbers_of(1)));
                           passes.end();
                         }),
              HasSubstr("has read a parameter of unit 'spare' outside of its call"));
}

TEST(ShardedMisuse, ValuesFromBeforeAnUpdateAreNotUsed) {
  const auto text = HasSubstr("while WholeParameters of the replica exist");
  EXPECT_THAT(error_with(in_units(),
                         [](Tower&, ShardedDataParallel& replica, comm::Group&) {
                           const WholeParameters whole(replica);
                           replica.begin_step();
                         }),
              text);
  EXPECT_THAT(error_with(in_units(),
                         [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
                           ShardedOptimizer optimizer(
                               std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
                           auto step = replica.begin_step();
                           backward_of_tower(net, step, 1);
                           const WholeParameters whole(replica);
                           step.apply(optimizer);
                         }),
              text);
  EXPECT_THAT(error_with(in_units(),
                         [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
                           [[maybe_unused]] const auto step = replica.begin_step();
                           const ForwardPasses passes(*net);
                         }),
              HasSubstr("ForwardPasses are for passes between two steps"));
}

// The values of one process that trains with these batches.
Values trained_alone(
    const std::vector<int>& batches,
    const std::function<void(TowerImpl&, int batch)>& before_step = [](TowerImpl&, int) {}) {
  auto net = seeded([] { return Tower(); });
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (const int batch : batches) {
    optimizer.zero_grad();
    before_step(*net, batch);
    loss_of_tower(net->forward(numbers_of(batch)), batch).backward();
    optimizer.step();
  }
  return values_of(*net);
}

// A pass between backward and the update gathers units ahead, with the old values.
TEST(ShardedParameters, AreGatheredAgainAfterAnUpdate) {
  with_sharded_tower(2, in_units(), [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
    auto step = replica.begin_step();
    backward_of_tower(net, step, 1);
    {
      const torch::NoGradGuard no_grad;
      unit(net->blocks->ptr<BlockImpl>(0))(on_test_device(torch::ones({2, kWidth})));
    }
    step.apply(optimizer);
    EXPECT_EQ(bytes_with_memory(*net), 0U);
    step_of_tower(net, replica, optimizer, 2);
    const WholeParameters whole(replica);
    expect_close(values_of(*net), trained_alone({1, 2}));
  });
}

TEST(ShardedParameters, MayBeFrozenBetweenSteps) {
  auto options = on_device() ? parameters_in({"blocks.*"}) : in_units();
  options.data_parallel.allow_unused = !on_device();
  if (on_device()) GTEST_SKIP() << "needs allow_unused";
  const auto freeze = [](TowerImpl& net, int batch) {
    if (batch != 1) return;
    for (auto& p : net.blocks[1]->parameters()) {
      p.requires_grad_(false);
      p.mutable_grad().reset();
    }
  };
  with_sharded_tower(2, options, [&](Tower& net, ShardedDataParallel& replica, comm::Group&) {
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
    for (int i = 0; i < 3; ++i) {
      freeze(*net, i);
      step_of_tower(net, replica, optimizer, i);
    }
    const WholeParameters whole(replica);
    expect_close(values_of(*net), trained_alone({0, 1, 2}, freeze));
  });
}

std::size_t gathers_of(const std::string& unit, const ShardedDataParallel& replica) {
  const auto& spans = replica.communication();
  return static_cast<std::size_t>(std::ranges::count_if(
      spans, [&](const auto& span) { return span.label == "parameters of " + unit; }));
}

TEST(ShardedParameters, AreGatheredOnceInForwardAndOnceInBackward) {
  if (on_device()) GTEST_SKIP() << "a device may not have ended them";
  for (const bool recompute : {false, true}) {
    with_sharded_tower(2, in_units(),
                       [&](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
                         net->recompute = recompute;
                         for (int i = 0; i < 3; ++i) {
                           auto step = replica.begin_step();
                           backward_of_tower(net, step, group.rank());
                           EXPECT_EQ(gathers_of("blocks.0", replica), 2U);
                           EXPECT_EQ(gathers_of("blocks.2", replica), 2U);
                           EXPECT_EQ(gathers_of("spare", replica), 1U);  // the last one
                         }
                         // Twice backward through one forward.
                         auto step = replica.begin_step(2);
                         const auto loss = loss_of_tower(net->forward(numbers_of(1)), 1);
                         step.backward(loss, {.retain_graph = true});
                         step.backward(loss);
                         EXPECT_EQ(gathers_of("blocks.0", replica), 3U);
                       });
  }
}

// The others must not end with a second error while they unwind.
TEST(ShardedParameters, AnErrorInAPassReachesAllRanks) {
  const auto text = error_of_three_ranks([](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    ShardedDataParallel replica(*net, group, in_units());
    const torch::NoGradGuard no_grad;
    ForwardPasses passes(*net);
    passes.begin();
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait in a gather
      throw RuntimeError("the data of rank 1 is bad");
    }
    net->forward(numbers_of(1));
    passes.end();
  });
  EXPECT_THAT(text, HasSubstr("the data of rank 1 is bad"));
}

TEST(ShardedMisuse, PassesInAnUnknownOrderAreRefused) {
  const auto pass = [](Tower& net) {
    const torch::NoGradGuard no_grad;
    net->calls = {1, 0, 2};
    ForwardPasses passes(*net);
    passes.begin();
    net->forward(numbers_of(1));
    passes.end();
  };
  EXPECT_THAT(
      error_with(in_units(), [&](Tower& net, ShardedDataParallel&, comm::Group&) { pass(net); }),
      HasSubstr("the unit 'blocks.0' is called out of turn in a pass of ForwardPasses"));
  // After a step, it is known.
  with_sharded_tower(3, in_units(), [&](Tower& net, ShardedDataParallel& replica, comm::Group&) {
    net->calls = {1, 0, 2};
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
    for (int i = 0; i < 2; ++i) {
      step_of_tower(net, replica, optimizer, 1);
    }
    pass(net);
  });
}

TEST(ShardedGradients, LeftByAnErrorAreForgotten) {
  const auto options = in_units();
  with_sharded_tower(1, options, [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
    {
      auto step = replica.begin_step(2);
      backward_of_tower(net, step, 5);  // the second one fails
    }
    step_of_tower(net, replica, optimizer, 1);
    const WholeParameters whole(replica);
    expect_close(values_of(*net), trained_alone({1}));
  });
}

TEST(ShardedMisuse, UnusedParametersAreNamed) {
  EXPECT_THAT(error_with(in_units(),
                         [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
                           auto step = replica.begin_step();
                           step.backward(loss_of_tower(net->forward(numbers_of(1), false), 1));
                         }),
              HasSubstr("no gradient for 2 of"));
}

// Both orders are not the expected one, and take the same number of gathers.
TEST(ShardedMisuse, DifferentOrdersOfUnitsAreNamed) {
  if (on_device()) GTEST_SKIP() << "the order of launches is checked first";
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = seeded([] { return Tower(); });
                ShardedDataParallel replica(*net, group, in_units());
                net->calls = group.rank() == 2 ? std::vector{0, 2, 1} : std::vector{1, 0, 2};
                auto step = replica.begin_step();
                backward_of_tower(net, step, 1);
              }),
              HasSubstr("the ranks call different units in step 1: unit number 5 is 'blocks.0' on "
                        "rank 0, and 'spare' on rank 2; forward may leave out units"));
}

}  // namespace
}  // namespace ddp::test
