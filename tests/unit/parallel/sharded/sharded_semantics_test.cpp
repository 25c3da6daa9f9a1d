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

#include "ddp_runtime/parallel/buckets/reduce_type.h"
#include "tests/unit/parallel/sharded/strategies.h"
#include "tests/unit/parallel/sharded/tower.h"

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
  torch::Tensor loss(int step, bool uses_spare = true) {
    return loss_of_tower(net->forward(numbers_of(batch_of(step)), uses_spare), step);
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
  std::function<void(TowerImpl&)> change = [](TowerImpl&) {};
  bool same_bits = true;  // else strategies that reduce each micro-batch round in another order
  bool allow_unused = false;
  bool reduce_once = false;
  ReduceType reduce_type = {};
  double tolerance = 1e-6;  // if sums are rounded in another order

  friend std::ostream& operator<<(std::ostream& out, const Script& script) {
    return out << script.name;
  }
};

Values run_script(const Script& script, Strategy strategy, int ranks) {
  strategy.options.reduce_once = script.reduce_once;
  strategy.options.data_parallel.allow_unused = script.allow_unused;
  strategy.options.data_parallel.reduce_type = script.reduce_type;
  const auto make = [&] {
    Tower net;
    script.change(*net);
    return net;
  };
  return values_after(ranks, strategy, make,
                      [&](Tower& net, Training& training, comm::Group& group) {
                        Actor actor{net, training, group};
                        script.body(actor);
                      });
}

// --- Steps of one forward and one backward

void plain_steps(Actor& actor) {
  for (int i = 0; i < 4; ++i) actor.make_step(i);
}

// With the spare unit where `uses_spare` says so.
std::function<void(Actor&)> steps_with(std::function<bool(int rank, int step)> uses_spare) {
  return [uses_spare = std::move(uses_spare)](Actor& actor) {
    for (int i = 0; i < 4; ++i) {
      auto step = actor.training.replica->begin_step();
      step.backward(actor.loss(i, uses_spare(actor.group.rank(), i)));
      step.apply(*actor.training.optimizer);
    }
  };
}

// The rank takes part in all gathers and reductions, more than there are buffers.
void no_units_on_rank_1(Actor& actor) {
  if (actor.group.rank() == 1) actor.net->calls.clear();
  steps_with([](int rank, int) { return rank != 1; })(actor);
}

// --- Several micro-batches

// A rank has batches for the first ones.
std::function<void(Actor&)> three_micro_batches(
    std::function<int(int rank)> batches = [](int) { return 3; },
    std::function<bool(int micro)> uses_spare = [](int) { return true; }) {
  return [=](Actor& actor) {
    for (int i = 0; i < 3; ++i) {
      auto step = actor.training.replica->begin_step(3);
      for (int micro = 0; micro < batches(actor.group.rank()); ++micro) {
        step.backward(actor.loss(3 * i + micro, uses_spare(micro)));
      }
      if (!step.complete()) step.without_data();
      step.apply(*actor.training.optimizer);
    }
  };
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

std::function<void(Actor&)> ranks_without_data(int micro_batches) {
  return [=](Actor& actor) {
    int steps = 0;
    while (auto step = actor.training.replica->begin_uneven_step(steps < 1 + actor.group.rank(),
                                                                 micro_batches)) {
      if (!step->has_data()) step->without_data();
      for (int micro = 0; micro < micro_batches && step->has_data(); ++micro) {
        step->backward(actor.loss(steps + micro));
      }
      step->apply(*actor.training.optimizer);
      ++steps;
    }
    EXPECT_EQ(steps, actor.group.size());
  };
}

// --- Models

void call_twice(TowerImpl& net) {
  net.calls = {0, 1, 1, 2, 0};
}
void recompute(TowerImpl& net) {
  net.recompute = true;
}
void freeze_a_block(TowerImpl& net) {
  for (auto& p : net.blocks[1]->parameters()) p.requires_grad_(false);
}
void freeze_parts(TowerImpl& net) {
  net.tokens->weight.requires_grad_(false);
  net.blocks->ptr<BlockImpl>(0)->expand->weight.requires_grad_(false);
  net.blocks->ptr<BlockImpl>(2)->scale.requires_grad_(false);
}
void use_a_double(TowerImpl& net) {
  auto& scale = net.blocks->ptr<BlockImpl>(1)->scale;
  scale.set_data(scale.to(torch::kFloat64));
}

std::vector<Script> scripts() {
  const auto none = [](int, int) { return false; };
  const auto on_even_ranks = [](int rank, int) { return rank % 2 == 0; };
  const auto in_odd_steps = [](int, int step) { return step % 2 == 1; };
  const auto all = [](int) { return 3; };
  return {
      {"plain", plain_steps},
      {"called_twice", plain_steps, call_twice},
      {"recomputed", plain_steps, recompute},
      {"frozen_block", plain_steps, freeze_a_block},
      {"partly_frozen", plain_steps, freeze_parts},
      {"block_of_doubles", plain_steps, use_a_double},
      {.name = "unused_everywhere", .body = steps_with(none), .allow_unused = true},
      {.name = "unused_on_a_rank", .body = steps_with(on_even_ranks), .allow_unused = true},
      {.name = "unused_in_steps", .body = steps_with(in_odd_steps), .allow_unused = true},
      {.name = "no_units_on_a_rank", .body = no_units_on_rank_1, .allow_unused = true},
      {.name = "micro_batches", .body = three_micro_batches(), .same_bits = false},
      {.name = "once", .body = three_micro_batches(), .reduce_once = true},
      {.name = "once_called_twice",
       .body = three_micro_batches(),
       .change = call_twice,
       .reduce_once = true},
      {.name = "once_recomputed",
       .body = three_micro_batches(),
       .change = recompute,
       .reduce_once = true},
      {.name = "once_partly_frozen",
       .body = three_micro_batches(),
       .change = freeze_parts,
       .reduce_once = true},
      {.name = "once_unused_in_the_last",
       .body = three_micro_batches(all, [](int micro) { return micro == 0; }),
       .allow_unused = true,
       .reduce_once = true},
      {.name = "once_no_data_in_the_last",
       .body = three_micro_batches([](int rank) { return rank == 1 ? 2 : 3; }),
       .reduce_once = true},
      {.name = "once_no_data_at_all",
       .body = three_micro_batches([](int rank) { return rank == 1 ? 0 : 3; }),
       .reduce_once = true},
      {.name = "once_reduced_in_bf16",
       .body = three_micro_batches(),
       .reduce_once = true,
       .reduce_type = torch::kBFloat16,
       .tolerance = 0.02},
      {"backward_twice", backward_twice},
      {.name = "two_losses_of_one_forward", .body = two_losses_of_one_forward, .same_bits = false},
      {.name = "two_forwards_then_their_losses",
       .body = two_forwards_then_their_losses,
       .same_bits = false},
      {"one_loss_of_two_forwards", one_loss_of_two_forwards},
      {"forward_without_backward", forward_without_backward},
      {"step_that_is_given_up", step_that_is_given_up},
      {"evaluations_between_steps", evaluations_between_steps},
      {"errors_in_forward", errors_in_forward},
      {"errors_in_an_evaluation", errors_in_an_evaluation},
      {"penalty_on_gradients", penalty_on_gradients},
      {"ranks_without_data", ranks_without_data(1)},
      {.name = "ranks_without_data_of_micro_batches",
       .body = ranks_without_data(2),
       .same_bits = false}};
}

class ShardedScripts : public testing::TestWithParam<Script> {
 protected:
  ShardedScripts() { torch::set_num_threads(1); }

  static std::vector<Strategy> strategies() {
    auto all = all_strategies(kTowerUnits);
    all.push_back(hybrid_alone(kTowerUnits));
    all.push_back(strategy_called("parameters", {"blocks.1", "spare"}));
    all.back().name = "nested";
    return all;
  }
};

TEST_P(ShardedScripts, EndWithTheValuesOfDataParallelism) {
  for (const int ranks : numbers_of_ranks()) {
    const auto expected = run_script(GetParam(), without_shards(), ranks);
    for (const auto& strategy : strategies()) {
      if (!strategy.is_possible_with(ranks)) continue;
      // Refused: see ShardedMisuse.
      if (on_device() && GetParam().allow_unused && strategy.has_units()) continue;
      SCOPED_TRACE(strategy.name + ", " + std::to_string(ranks) + " ranks");
      const auto values = run_script(GetParam(), strategy, ranks);
      const bool same_sums = GetParam().same_bits || strategy.options.shard == Shard::optimizer;
      if (strategy.adds_in_order(ranks) && same_sums) {
        expect_same_bits(values, expected);
      } else {
        expect_near(values, expected, GetParam().tolerance);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scripts, ShardedScripts, testing::ValuesIn(scripts()),
                         [](const auto& param_info) { return param_info.param.name; });

// Fails in the backward of its second step, and catches that.
// In the first backward of step 2.
void make_a_step_that_fails(Actor& actor, int micro_batches = 1) {
  actor.make_step(0);
  auto step = actor.training.replica->begin_step(micro_batches);
  const auto loss = actor.loss(1);
  const auto hook = actor.net->spare->weight.register_hook([](const torch::Tensor& gradient) {
    throw std::runtime_error("out of memory");
    return gradient;
  });
  EXPECT_THAT(error_of([&] { step.backward(loss); }), HasSubstr("out of memory"));
  actor.net->spare->weight.remove_hook(hook);
}

class ShardedErrorsInBackward : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(MicroBatches, ShardedErrorsInBackward, testing::Values(1, 2));

TEST_P(ShardedErrorsInBackward, LeaveNoRankInAnotherStep) {
  for (const auto& strategy : all_strategies(kTowerUnits)) {
    // Then nothing was on its way yet: the program may leave the step out.
    if (GetParam() > 1 && strategy.options.shard == Shard::optimizer) continue;
    const int ranks = 3 + strategy.options.hybrid_ranks / 2;
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    SCOPED_TRACE(strategy.name);
    // Gathers that the failed step has left may still run when the barrier of all ranks begins.
    test::allow_collectives_at_once(2);
    test::run_ranks(ranks, [&](comm::Group& group) {
      auto net = seeded([] { return Tower(); });
      auto training = begin_training(*net, group, strategy);
      Actor actor{net, training, group};
      make_a_step_that_fails(actor, GetParam());
      texts[static_cast<std::size_t>(group.rank())] = error_of([&] { actor.make_step(2); });
      group.barrier().wait();
    });
    EXPECT_THAT(texts, testing::Each(HasSubstr("the backward pass of step 2 ended with an error "
                                               "before all gradients were averaged")));
  }
}

TEST(ShardedErrors, InBackwardAreForgottenByASingleRank) {
  const auto trained = [](const Strategy& strategy, bool fails) {
    return run_script({"",
                       [=](Actor& actor) {
                         fails ? make_a_step_that_fails(actor) : actor.make_step(0);
                         for (int i = 2; i < 4; ++i) actor.make_step(i);
                       }},
                      strategy, 1);
  };
  for (const auto& strategy : all_strategies(kTowerUnits)) {
    if (!strategy.is_possible_with(1)) continue;
    SCOPED_TRACE(strategy.name);
    expect_same_bits(trained(strategy, true), trained(strategy, false));
  }
}

// --- Clipping

Values clipped_by_all(const Strategy& strategy, int ranks) {
  const auto body = [](Actor& actor) {
    for (int i = 0; i < 2; ++i) {
      auto step = actor.training.replica->begin_step();
      step.backward(actor.loss(i));
      if (actor.training.sharded() != nullptr) {
        dynamic_cast<ShardedOptimizer&>(*actor.training.optimizer).clip_gradients(0.1);
      } else {
        torch::nn::utils::clip_grad_norm_(actor.net->parameters(), 0.1);
      }
      step.apply(*actor.training.optimizer);
    }
  };
  return run_script({"", body}, strategy, ranks);
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
  const Script script{"plain", plain_steps};
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
