// SPDX-License-Identifier: Apache-2.0
// Steps that are not one forward and one backward: every strategy ends with the values of plain
// data parallelism.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/parallel/strategies.h"
#include "tests/unit/parallel/tower.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kTowerUnits = {"blocks.*", "spare"};

// One rank in a script.
struct Actor {
  Tower& net;
  Training& training;
  comm::Group& group;

  int batch_of(int step) const { return step * group.size() + group.rank(); }
  torch::Tensor loss(int step) {
    return loss_of_tower(net->forward(numbers_of(batch_of(step))), step);
  }
  void make_step(int number) {
    auto step = training.replica->begin_step();
    step.backward(loss(number));
    step.apply(*training.optimizer);
  }
};

struct Script {
  std::string name;
  std::function<void(Actor&)> body;
  bool same_bits = true;  // else strategies that reduce each micro-batch round in another order

  friend std::ostream& operator<<(std::ostream& out, const Script& script) {
    return out << script.name;
  }
};

Values run_script(const Script& script, const Strategy& strategy, int ranks) {
  Values values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    auto training = begin_training(*net, group, strategy);
    Actor actor{net, training, group};
    script.body(actor);
    auto mine = whole_values(*net, training);
    if (group.rank() == 0) values = std::move(mine);
  });
  return values;
}

// --- Several backward passes

void backward_twice(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    auto step = actor.training.replica->begin_step(2);
    const auto loss = actor.loss(i);
    step.backward(loss, {.retain_graph = true});
    step.backward(loss);
    step.apply(*actor.training.optimizer);
  }
}

void two_losses_of_one_forward(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    auto step = actor.training.replica->begin_step(2);
    const auto scores = actor.net->forward(numbers_of(actor.batch_of(i)));
    step.backward(loss_of_tower(scores, i), {.retain_graph = true});
    step.backward(scores.square().mean());
    step.apply(*actor.training.optimizer);
  }
}

void two_forwards_then_their_losses(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    auto step = actor.training.replica->begin_step(2);
    const auto first = actor.loss(2 * i);
    const auto second = actor.loss(2 * i + 1);
    step.backward(first, {.retain_graph = false, .weight = 0.5});
    step.backward(second, {.retain_graph = false, .weight = 1.5});
    step.apply(*actor.training.optimizer);
  }
}

void one_loss_of_two_forwards(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    auto step = actor.training.replica->begin_step();
    step.backward(actor.loss(2 * i) + actor.loss(2 * i + 1));
    step.apply(*actor.training.optimizer);
  }
}

// --- Forward without backward

void forward_without_backward(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    auto step = actor.training.replica->begin_step();
    actor.loss(i + 7);
    {
      const torch::NoGradGuard no_grad;
      actor.loss(i + 8);
    }
    step.backward(actor.loss(i));
    step.apply(*actor.training.optimizer);
  }
}

void step_that_is_given_up(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    actor.training.replica->begin_step();
    if (i != 1) actor.loss(i + 7);
    actor.make_step(i);
  }
}

// Ranks have different numbers of batches, and gradients are enabled in some passes.
void evaluations_between_steps(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    actor.make_step(i);
    ForwardPasses passes(*actor.net);
    for (int batch = 0; batch < 3; ++batch) {
      const at::AutoGradMode mode(batch == 1);
      passes.begin();
      if (batch < 3 - actor.group.rank()) actor.loss(batch);
      passes.end();
    }
  }
}

// --- Errors that a program catches

void expect_error(const std::function<void()>& call) {
  EXPECT_NE(error_of(call), "");
}

// Between units, in a unit, and before the first one; also before the order of units is known.
void errors_in_forward(Actor& actor) {
  auto& replica = *actor.training.replica;
  for (int i = 0; i < 2; ++i) {
    replica.begin_step();
    actor.net->calls = {0, 1, 7};
    expect_error([&] { actor.loss(i); });
    actor.net->calls = {0, 1, 2};

    replica.begin_step();
    const auto narrow = on_test_device(torch::ones({2, 3}));
    const auto first = actor.net->blocks->ptr<BlockImpl>(0);
    expect_error([&] { actor.net->through(first, narrow); });

    if (!on_device()) {
      replica.begin_step();
      expect_error([&] { actor.net->forward(numbers_of(1) + 100); });
    }
    actor.make_step(i);
  }
}

void errors_in_an_evaluation(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    {
      const torch::NoGradGuard no_grad;
      ForwardPasses passes(*actor.net);
      passes.begin();
      actor.net->calls = {0, 1, 7};
      expect_error([&] { actor.loss(i); });
      actor.net->calls = {0, 1, 2};
    }
    actor.make_step(i);
  }
}

// --- Others

// Backward of gradients, outside of a step's backward() and then in it.
void penalty_on_gradients(Actor& actor) {
  for (int i = 0; i < 3; ++i) {
    auto step = actor.training.replica->begin_step();
    const auto loss = actor.loss(i);
    const auto gradient = torch::autograd::grad({loss}, {actor.net->tokens->weight}, {},
                                                /*retain_graph=*/true, /*create_graph=*/true)[0];
    step.backward(loss + gradient.square().sum());
    step.apply(*actor.training.optimizer);
  }
}

void ranks_without_data(Actor& actor) {
  int steps = 0;
  while (auto step = actor.training.replica->begin_uneven_step(steps < 1 + actor.group.rank())) {
    step->has_data() ? step->backward(actor.loss(steps)) : step->without_data();
    step->apply(*actor.training.optimizer);
    ++steps;
  }
  EXPECT_EQ(steps, actor.group.size());
}

std::vector<Script> scripts() {
  return {{"backward_twice", backward_twice},
          {"two_losses_of_one_forward", two_losses_of_one_forward, false},
          {"two_forwards_then_their_losses", two_forwards_then_their_losses, false},
          {"one_loss_of_two_forwards", one_loss_of_two_forwards},
          {"forward_without_backward", forward_without_backward},
          {"step_that_is_given_up", step_that_is_given_up},
          {"evaluations_between_steps", evaluations_between_steps},
          {"errors_in_forward", errors_in_forward},
          {"errors_in_an_evaluation", errors_in_an_evaluation},
          {"penalty_on_gradients", penalty_on_gradients},
          {"ranks_without_data", ranks_without_data}};
}

class ShardedScripts : public testing::TestWithParam<Script> {
 protected:
  ShardedScripts() { torch::set_num_threads(1); }
};

TEST_P(ShardedScripts, EndWithTheValuesOfDataParallelism) {
  for (const int ranks : numbers_of_ranks()) {
    const auto expected = run_script(GetParam(), without_shards(), ranks);
    for (const auto& strategy : all_strategies(kTowerUnits)) {
      if (!strategy.is_possible_with(ranks)) continue;
      SCOPED_TRACE(strategy.name + ", " + std::to_string(ranks) + " ranks");
      const auto values = run_script(GetParam(), strategy, ranks);
      const bool same_order = strategy.options.hybrid_ranks == 0 || ranks == 2;
      const bool same_sums = GetParam().same_bits || strategy.options.shard == Shard::optimizer;
      same_order&& same_sums ? expect_same_bits(values, expected)
                             : expect_near(values, expected, 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scripts, ShardedScripts, testing::ValuesIn(scripts()),
                         [](const auto& param_info) { return param_info.param.name; });

// Fails in the backward of its second step, and catches that.
void make_a_step_that_fails(Actor& actor) {
  actor.make_step(0);
  auto step = actor.training.replica->begin_step();
  const auto loss = actor.loss(1);
  const auto hook = actor.net->spare->weight.register_hook([](const torch::Tensor& gradient) {
    throw std::runtime_error("out of memory");
    return gradient;
  });
  EXPECT_THAT(error_of([&] { step.backward(loss); }), HasSubstr("out of memory"));
  actor.net->spare->weight.remove_hook(hook);
}

TEST(ShardedErrorsInBackward, LeaveNoRankInAnotherStep) {
  for (const auto& strategy : all_strategies(kTowerUnits)) {
    const int ranks = 3 + strategy.options.hybrid_ranks / 2;
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    SCOPED_TRACE(strategy.name);
    // Gathers that the failed step has left may still run when the barrier of all ranks begins.
    test::allow_collectives_at_once(2);
    test::run_ranks(ranks, [&](comm::Group& group) {
      auto net = seeded([] { return Tower(); });
      auto training = begin_training(*net, group, strategy);
      Actor actor{net, training, group};
      make_a_step_that_fails(actor);
      texts[static_cast<std::size_t>(group.rank())] = error_of([&] { actor.make_step(2); });
      group.barrier().wait();
    });
    EXPECT_THAT(texts, testing::Each(HasSubstr("the backward pass of step 2 ended with an error "
                                               "before all gradients were averaged")));
  }
}

TEST(ShardedErrorsInBackward, AreForgottenByASingleRank) {
  const auto trained = [](const Strategy& strategy, bool fails) {
    Values values;
    test::run_ranks(1, [&](comm::Group& group) {
      auto net = seeded([] { return Tower(); });
      auto training = begin_training(*net, group, strategy);
      Actor actor{net, training, group};
      fails ? make_a_step_that_fails(actor) : actor.make_step(0);
      for (int i = 2; i < 4; ++i) actor.make_step(i);
      values = whole_values(*net, training);
    });
    return values;
  };
  for (const auto& strategy : all_strategies(kTowerUnits)) {
    if (!strategy.is_possible_with(1)) continue;
    SCOPED_TRACE(strategy.name);
    expect_same_bits(trained(strategy, true), trained(strategy, false));
  }
}

// --- Clipping

Values clipped_by_all(const Strategy& strategy, int ranks) {
  Values values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    auto training = begin_training(*net, group, strategy);
    Actor actor{net, training, group};
    for (int i = 0; i < 2; ++i) {
      auto step = training.replica->begin_step();
      step.backward(actor.loss(i));
      if (training.sharded() != nullptr) {
        dynamic_cast<ShardedOptimizer&>(*training.optimizer).clip_gradients(0.1);
      } else {
        torch::nn::utils::clip_grad_norm_(net->parameters(), 0.1);
      }
      step.apply(*training.optimizer);
    }
    auto mine = whole_values(*net, training);
    if (group.rank() == 0) values = std::move(mine);
  });
  return values;
}

Values clipped_by_one(int ranks, double max_norm) {
  auto net = seeded([] { return Tower(); });
  const auto optimizer = sgd_of(net->parameters());
  for (int i = 0; i < 2; ++i) {
    optimizer->zero_grad();
    for (int rank = 0; rank < ranks; ++rank) {
      (loss_of_tower(net->forward(numbers_of(i * ranks + rank)), i) / ranks).backward();
    }
    torch::nn::utils::clip_grad_norm_(net->parameters(), max_norm);
    optimizer->step();
  }
  return values_of(*net);
}

TEST(ShardedClipping, IsByTheNormOfOneProcess) {
  for (const int ranks : {2, 3, 4}) {
    const auto expected = clipped_by_one(ranks, 0.1);
    const auto whole = clipped_by_one(ranks, 100);
    EXPECT_FALSE(torch::allclose(expected.at("spare.weight"), whole.at("spare.weight"), 1e-3));
    for (const auto& strategy : all_strategies(kTowerUnits)) {
      if (!strategy.is_possible_with(ranks)) continue;
      SCOPED_TRACE(strategy.name + ", " + std::to_string(ranks) + " ranks");
      expect_near(clipped_by_all(strategy, ranks), expected, 1e-6);
    }
  }
}

// --- Sizes of buckets and units

TEST(ShardedSizes, ChangeNoBit) {
  const Script script{"plain", [](Actor& actor) {
                        for (int i = 0; i < 3; ++i) actor.make_step(i);
                      }};
  const auto expected = run_script(script, without_shards(), 3);
  const std::vector<std::vector<std::string>> lists = {
      kTowerUnits, {"blocks.1"}, {"spare"}, {"blocks.*"}};
  for (const BucketLimits buckets : {BucketLimits{1, 1}, {40, 300}, {1 << 20, 1 << 20}}) {
    for (const auto& units : lists) {
      for (const auto& strategy : all_strategies(units, buckets)) {
        if (!strategy.is_possible_with(3)) continue;
        const bool is_another = strategy.has_units() ? buckets.bytes == 1 : units == kTowerUnits;
        if (!is_another) continue;
        SCOPED_TRACE(strategy.name + ", buckets of " + std::to_string(buckets.bytes) + ", units " +
                     units.front() + ", " + std::to_string(units.size()));
        expect_same_bits(run_script(script, strategy, 3), expected);
      }
    }
  }
}

}  // namespace
}  // namespace ddp::test
