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

#include "tests/unit/parallel/tower.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;

using OnTower = std::function<void(Tower&, ShardedDataParallel&, comm::Group&)>;

void with_sharded_tower(int ranks, const ShardOptions& options, const OnTower& body) {
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    ShardedDataParallel replica(*net, group, options);
    body(net, replica, group);
  });
}

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

// As one process that makes the steps of the last rank alone.
Values trained_alone(int steps) {
  auto alone = seeded([] { return Tower(); });
  torch::optim::SGD plain(alone->parameters(), 0.1);
  for (int i = 0; i < steps; ++i) {
    plain.zero_grad();
    const auto both = loss_of_tower(alone->forward(numbers_of(1)), 1) +
                      loss_of_tower(alone->forward(numbers_of(2)), 2);
    (both / 2).backward();
    plain.step();
  }
  return values_of(*alone);
}

TEST(ShardedParameters, TrainOnRanksWithoutData) {
  const auto body = [](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
    int steps = 0;
    while (auto step = replica.begin_uneven_step(steps < group.rank(), 2)) {
      if (step->has_data()) {
        step->backward(loss_of_tower(net->forward(numbers_of(1)), 1));
        step->backward(loss_of_tower(net->forward(numbers_of(2)), 2));
      } else {
        step->without_data();
      }
      step->apply(optimizer);
      ++steps;
    }
    EXPECT_EQ(steps, group.size() - 1);
    const WholeParameters whole(replica);
    expect_close(values_of(*net), trained_alone(steps));
  };
  for (const auto& options : divided_weights())
    with_sharded_tower(ranks_for(options), options, body);
}

// The values of rank 0 after a step; null: without shards.
Values clipped(int ranks, const ShardOptions* shards) {
  Values values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    OwnedOptimizer plain = std::make_unique<torch::optim::SGD>(net->parameters(), 0.5);
    const auto replica =
        shards != nullptr ? std::make_unique<ShardedDataParallel>(*net, group, *shards) : nullptr;
    const auto whole =
        shards == nullptr ? std::make_unique<DistributedDataParallel>(*net, group) : nullptr;
    auto step = replica ? replica->begin_step() : whole->begin_step();
    step.backward(loss_of_tower(net->forward(numbers_of(group.rank())), group.rank()));
    if (replica) {
      ShardedOptimizer optimizer(std::move(plain), *replica);
      optimizer.clip_gradients(0.25);
      step.apply(optimizer);
      const WholeParameters now(*replica);
      if (group.rank() == 0) values = values_of(*net);
      return;
    }
    torch::nn::utils::clip_grad_norm_(net->parameters(), 0.25);
    step.apply(*plain);
    if (group.rank() == 0) values = values_of(*net);
  });
  return values;
}

TEST(ShardedParameters, ClipByTheNormOverAllRanks) {
  for (const auto& options : divided_weights()) {
    const int ranks = ranks_for(options);
    expect_close(clipped(ranks, &options), clipped(ranks, nullptr));
  }
}

std::string error_with(
    const ShardOptions& options,
    const OnTower& body = [](Tower&, ShardedDataParallel&, comm::Group&) {}) {
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
                           auto step = replica.begin_step();
                           step.backward(loss_of_tower(net->forward(numbers_of(1)), 1));
                           step.apply(plain);
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
                           step.backward(loss_of_tower(net->forward(numbers_of(1)), 1));
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

// A pass between backward and the update gathers units ahead, with the old values.
TEST(ShardedParameters, AreGatheredAgainAfterAnUpdate) {
  with_sharded_tower(2, in_units(), [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
    auto step = replica.begin_step();
    step.backward(loss_of_tower(net->forward(numbers_of(1)), 1));
    {
      const torch::NoGradGuard no_grad;
      unit(net->blocks->ptr<BlockImpl>(0))(on_test_device(torch::ones({2, kWidth})));
    }
    step.apply(optimizer);
    EXPECT_EQ(bytes_with_memory(*net), 0U);
    auto next = replica.begin_step();
    next.backward(loss_of_tower(net->forward(numbers_of(2)), 2));
    next.apply(optimizer);

    auto alone = seeded([] { return Tower(); });
    torch::optim::SGD plain(alone->parameters(), 0.1);
    for (const int batch : {1, 2}) {
      plain.zero_grad();
      loss_of_tower(alone->forward(numbers_of(batch)), batch).backward();
      plain.step();
    }
    const WholeParameters whole(replica);
    expect_close(values_of(*net), values_of(*alone));
  });
}

TEST(ShardedParameters, MayBeFrozenBetweenSteps) {
  auto options = on_device() ? parameters_in({"blocks.*"}) : in_units();
  options.data_parallel.allow_unused = !on_device();
  if (on_device()) GTEST_SKIP() << "needs allow_unused";
  with_sharded_tower(2, options, [](Tower& net, ShardedDataParallel& replica, comm::Group&) {
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(net->parameters(), 0.1),
                               replica);
    for (int i = 0; i < 3; ++i) {
      if (i == 1) {
        for (auto& p : net->blocks[1]->parameters()) p.requires_grad_(false);
      }
      auto step = replica.begin_step();
      step.backward(loss_of_tower(net->forward(numbers_of(i)), i));
      step.apply(optimizer);
    }
    auto alone = seeded([] { return Tower(); });
    torch::optim::SGD plain(alone->parameters(), 0.1);
    for (int i = 0; i < 3; ++i) {
      plain.zero_grad();
      if (i == 1) {
        for (auto& p : alone->blocks[1]->parameters()) {
          p.requires_grad_(false);
          p.mutable_grad().reset();
        }
      }
      loss_of_tower(alone->forward(numbers_of(i)), i).backward();
      plain.step();
    }
    const WholeParameters whole(replica);
    expect_close(values_of(*net), values_of(*alone));
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
    with_sharded_tower(
        2, in_units(), [&](Tower& net, ShardedDataParallel& replica, comm::Group& group) {
          net->recompute = recompute;
          for (int i = 0; i < 3; ++i) {
            auto step = replica.begin_step();
            step.backward(loss_of_tower(net->forward(numbers_of(group.rank())), group.rank()));
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

// It takes part in all gathers and reductions, more than there are buffers.
TEST(ShardedParameters, MayBeUnusedByARank) {
  if (on_device()) GTEST_SKIP() << "needs allow_unused";
  const auto trained = [](bool sharded) {
    Values values;
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = seeded([] { return Tower(); });
      OwnedOptimizer optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
      auto options = in_units();
      options.data_parallel.allow_unused = true;
      OwnedReplica replica;
      if (sharded) {
        auto made = std::make_unique<ShardedDataParallel>(*net, group, options);
        optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), *made);
        replica = std::move(made);
      } else {
        replica = std::make_unique<DistributedDataParallel>(*net, group, options.data_parallel);
      }
      if (group.rank() == 1) net->calls.clear();
      for (int i = 0; i < 3; ++i) {
        auto step = replica->begin_step();
        step.backward(loss_of_tower(net->forward(numbers_of(i), group.rank() == 0), i));
        step.apply(*optimizer);
      }
      const auto whole =
          sharded ? std::make_unique<WholeParameters>(dynamic_cast<ShardedDataParallel&>(*replica))
                  : nullptr;
      if (group.rank() == 0) values = values_of(*net);
    });
    return values;
  };
  const auto expected = trained(false);
  for (const auto& [name, value] : trained(true)) {
    EXPECT_TRUE(torch::equal(value, expected.at(name))) << name;
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
      auto step = replica.begin_step();
      step.backward(loss_of_tower(net->forward(numbers_of(1)), 1));
      step.apply(optimizer);
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
      step.backward(loss_of_tower(net->forward(numbers_of(5)), 5));  // the second one fails
    }
    auto step = replica.begin_step();
    step.backward(loss_of_tower(net->forward(numbers_of(1)), 1));
    step.apply(optimizer);
    auto alone = seeded([] { return Tower(); });
    torch::optim::SGD plain(alone->parameters(), 0.1);
    loss_of_tower(alone->forward(numbers_of(1)), 1).backward();
    plain.step();
    const WholeParameters whole(replica);
    expect_close(values_of(*net), values_of(*alone));
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
                step.backward(loss_of_tower(net->forward(numbers_of(1)), 1));
              }),
              HasSubstr("the ranks call different units in step 1: unit number 5 is 'blocks.0' on "
                        "rank 0, and 'spare' on rank 2; forward may leave out units"));
}

}  // namespace
}  // namespace ddp::test
