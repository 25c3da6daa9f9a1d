// SPDX-License-Identifier: Apache-2.0
// Local steps in loops of one's own: what they equal, the outer step, what each rank keeps, and how
// ranks that do not act alike end.
#include "ddp_runtime/parallel/local/local_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/layers/sync_batch_norm.h"
#include "ddp_runtime/parallel/local/outer_step.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Loop {
  int ranks = 1;
  int steps = 6;
  std::optional<LocalStepsOptions> local = {};  // nullopt: DistributedDataParallel alone
  double momentum = 0;
  bool same_data = false;
  std::function<int(int)> node_of = {};
};

// The parameters of each rank at the end, without settle().
std::vector<Values> train(const Loop& loop) {
  std::vector<Values> ends(static_cast<std::size_t>(loop.ranks));
  test::run_ranks(
      loop.ranks,
      [&](comm::Group& group) {
        auto net = make_branches();
        std::optional<LocalSteps> local;
        if (loop.local) local.emplace(*net, group, *loop.local);
        auto replica = std::make_unique<DistributedDataParallel>(
            *net, local ? local->gradient_group() : group);
        torch::optim::SGD optimizer(net->parameters(),
                                    torch::optim::SGDOptions(0.05).momentum(loop.momentum));
        for (int i = 0; i < loop.steps; ++i) {
          if (local) local->begin_step();
          if (local && &local->gradient_group() != &replica->group()) {
            replica.reset();
            replica = std::make_unique<DistributedDataParallel>(*net, local->gradient_group());
          }
          auto step = replica->begin_step();
          const int data = i + (loop.same_data ? 0 : 10 * group.rank());
          step.backward(loss_of(net->forward(input_of(data) * 0.1, "abc")));
          step.apply(optimizer);
          if (local) local->end_step();
        }
        ends[static_cast<std::size_t>(group.rank())] = values_of(*net);
      },
      {}, loop.node_of);
  return ends;
}

TEST(LocalSteps, OfOneStepWithoutMomentumEqualDataParallelExceptForRounding) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto ddp = train({.ranks = ranks});
    const auto local = train({.ranks = ranks, .local = LocalStepsOptions{.every = 1}});
    for (const auto& end : local) {
      expect_close(end, ddp[0]);
      EXPECT_TRUE(same_bits(end, local[0])) << ranks << " ranks";
    }
  }
}

TEST(LocalSteps, LeaveTheRanksApartUntilTheNextAverage) {
  const auto apart = train({.ranks = 2, .steps = 5, .local = LocalStepsOptions{.every = 3}});
  EXPECT_FALSE(same_bits(apart[0], apart[1]));
  const auto together = train({.ranks = 2, .steps = 6, .local = LocalStepsOptions{.every = 3}});
  EXPECT_TRUE(same_bits(together[0], together[1]));
}

// A sum of equal values is exact for 2 and 4 ranks.
TEST(LocalSteps, OfRanksWithTheSameDataEqualOneRankBitwise) {
  for (const auto kind : {Outer::average, Outer::nesterov}) {
    const LocalStepsOptions options{.every = 3, .outer = {.kind = kind}};
    const auto one = train({.local = options, .momentum = 0.9, .same_data = true});
    for (const int ranks : {2, 4}) {
      const auto all =
          train({.ranks = ranks, .local = options, .momentum = 0.9, .same_data = true});
      for (const auto& end : all) EXPECT_TRUE(same_bits(end, one[0])) << ranks << " ranks";
    }
  }
  const auto alone = train({.momentum = 0.9, .same_data = true});
  const auto averaged = train(
      {.ranks = 2, .local = LocalStepsOptions{.every = 3}, .momentum = 0.9, .same_data = true});
  EXPECT_TRUE(same_bits(averaged[1], alone[0])) << "momentum is each rank's own";
}

TEST(LocalSteps, AfterSynchronousOnesEqualDataParallelBitwiseUntilThen) {
  for (const int ranks : {2, 3}) {
    const auto ddp = train({.ranks = ranks, .steps = 4, .momentum = 0.9});
    const LocalStepsOptions options{.every = 2, .from = 4};
    const auto post = train({.ranks = ranks, .steps = 4, .local = options, .momentum = 0.9});
    for (const auto& end : post) EXPECT_TRUE(same_bits(end, ddp[0]));
    const auto later = train({.ranks = ranks, .steps = 5, .local = options, .momentum = 0.9});
    EXPECT_FALSE(same_bits(later[0], later[1])) << "the fifth step is a local one";
    const auto end = train({.ranks = ranks, .steps = 6, .local = options, .momentum = 0.9});
    EXPECT_TRUE(same_bits(end[0], end[1])) << "the average comes two steps after the fourth";
  }
}

TEST(LocalSteps, WithAnOuterStepOfRate1WithoutMomentumEqualTheAverage) {
  for (const int ranks : {2, 3}) {
    const auto plain = train({.ranks = ranks, .local = LocalStepsOptions{.every = 3}});
    const auto outer = train(
        {.ranks = ranks,
         .local = LocalStepsOptions{
             .every = 3, .outer = {.kind = Outer::nesterov, .learning_rate = 1, .momentum = 0}}});
    expect_close(outer[0], plain[0]);
  }
}

// Two nodes of two ranks, whose data differs only between the nodes.
TEST(LocalSteps, WithinNodesAverageGradientsOfEachNode) {
  const LocalStepsOptions options{.every = 3, .within = LocalWithin::node};
  const auto node_of = [](int rank) { return rank / 2; };
  const auto apart = train({.ranks = 4, .steps = 5, .local = options, .node_of = node_of});
  EXPECT_TRUE(same_bits(apart[0], apart[1]));
  EXPECT_TRUE(same_bits(apart[2], apart[3]));
  EXPECT_FALSE(same_bits(apart[1], apart[2]));
  const auto together = train({.ranks = 4, .steps = 6, .local = options, .node_of = node_of});
  for (const auto& end : together) EXPECT_TRUE(same_bits(end, together[0]));
  const auto one_node =
      train({.ranks = 4, .steps = 5, .local = options, .node_of = [](int) { return 0; }});
  const auto ddp = train({.ranks = 4, .steps = 5});
  EXPECT_TRUE(same_bits(one_node[3], ddp[0]));
}

// By hand, with rate 0.5 and momentum 0.5, for the start 8 and the means 4, 6 and 1:
//
//   gradient 4, velocity 4, step 0.5 * (4 + 2) = 3       -> 5
//   gradient -1, velocity 1, step 0.5 * (-1 + 0.5)       -> 5.25
//   gradient 4.25, velocity 4.75, step 0.5 * 6.625       -> 1.9375
TEST(OuterStep, IsThatOfSgdWithNesterovMomentumTowardsTheMean) {
  const OuterOptions options{.kind = Outer::nesterov, .learning_rate = 0.5, .momentum = 0.5};
  const auto start = torch::full({1}, 8.0);
  const auto velocity = torch::zeros({1});
  for (const auto& [mean, expected, speed] :
       std::vector<std::array<double, 3>>{{4, 5, 4}, {6, 5.25, 1}, {1, 1.9375, 4.75}}) {
    const auto taken = torch::full({1}, mean);
    outer_step(options, start, velocity, taken);
    EXPECT_EQ(start.item<double>(), expected);
    EXPECT_EQ(taken.item<double>(), expected);
    EXPECT_EQ(velocity.item<double>(), speed);
  }
}

TEST(OuterStep, EqualsTheOptimizerOfLibtorch) {
  auto parameter = torch::linspace(-1, 1, 7).set_requires_grad(true);
  torch::optim::SGD sgd({parameter}, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true));
  const auto start = parameter.detach().clone();
  const auto velocity = torch::zeros_like(start);
  for (int i = 0; i < 4; ++i) {
    const auto mean = start * 0.5 + i;
    parameter.mutable_grad() = start - mean;
    sgd.step();
    outer_step({.kind = Outer::nesterov}, start, velocity, mean.clone());
    EXPECT_TRUE(torch::allclose(start, parameter.detach(), 1e-6, 1e-7)) << i;
  }
}

// A module of one number, and a buffer of each kind.
struct CounterImpl : torch::nn::Module {
  CounterImpl() {
    value = register_parameter("value", torch::zeros({1}));
    frozen = register_parameter("frozen", torch::ones({1}), /*requires_grad=*/false);
    mean = register_buffer("mean", torch::zeros({1}));
    count = register_buffer("count", torch::zeros({}, torch::kInt64));
  }
  void set(double number) {
    const torch::NoGradGuard no_grad;
    value.fill_(number);
    mean.fill_(10 * number);
    count.fill_(static_cast<std::int64_t>(number));
  }
  double number() const { return value.item<double>(); }
  torch::Tensor value;
  torch::Tensor frozen;
  torch::Tensor mean;
  torch::Tensor count;
};
TORCH_MODULE(Counter);

Counter make_counter() {
  return seeded([] { return Counter(); });
}

TEST(LocalSteps, AverageParametersAndStatisticsAndTakeCountsOfRank0) {
  test::run_ranks(3, [](comm::Group& group) {
    auto counter = make_counter();
    LocalSteps local(*counter, group, {.every = 2});
    for (int i = 0; i < 2; ++i) {
      local.begin_step();
      counter->set(group.rank() + 1);
      EXPECT_EQ(local.end_step(), i == 1);
    }
    EXPECT_EQ(counter->number(), 2);
    EXPECT_EQ(counter->mean.item<double>(), 20);
    EXPECT_EQ(counter->count.item<std::int64_t>(), 1);
    EXPECT_EQ(local.averages(), 1);
  });
}

TEST(LocalSteps, SettleIsAMeanForTheTimeBetweenTwoSteps) {
  test::run_ranks(2, [](comm::Group& group) {
    auto counter = make_counter();
    LocalSteps local(*counter, group, {.every = 10, .outer = {.kind = Outer::nesterov}});
    local.begin_step();
    counter->set(group.rank() + 1);
    local.end_step();
    EXPECT_TRUE(local.are_apart());
    local.settle();
    EXPECT_EQ(counter->number(), 1.5) << "without an outer step";
    EXPECT_EQ(counter->mean.item<double>(), 15);
    local.settle();
    EXPECT_EQ(counter->number(), 1.5);
    local.begin_step();
    EXPECT_EQ(counter->number(), group.rank() + 1);
    EXPECT_EQ(counter->mean.item<double>(), 10 * (group.rank() + 1));
    EXPECT_EQ(counter->count.item<std::int64_t>(), group.rank() + 1);
  });
}

TEST(LocalSteps, NameTheRankWhoseParametersAreNotFinite) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto error = error_on_each_of_three_ranks([&](comm::Group& group) {
      auto counter = make_counter();
      LocalSteps local(*counter, group, {.every = 2});
      for (int i = 0; i < 2; ++i) {
        local.begin_step();
        counter->set(group.rank() == 1 && i == 0 ? bad : counter->number() + 1);
        local.end_step();
      }
    });
    EXPECT_THAT(error, AllOf(HasSubstr("of rank 1 are not finite at the average after step 2"),
                             HasSubstr("check the data of that rank")));
  }
}

TEST(LocalSteps, AcceptFiniteValuesWhoseSumIsNot) {
  test::run_ranks(1, [](comm::Group& group) {
    torch::nn::Linear layer(2, 1);
    move_to_test_device(*layer);
    LocalSteps local(*layer, group, {.every = 1, .outer = {.kind = Outer::nesterov}});
    local.begin_step();
    {
      const torch::NoGradGuard no_grad;
      layer->weight.fill_(3e38);
    }
    EXPECT_TRUE(local.end_step());
  });
}

TEST(LocalSteps, NameTheRankThatIsInAnotherStep) {
  const auto error = error_on_each_of_three_ranks([](comm::Group& group) {
    auto counter = make_counter();
    LocalSteps local(*counter, group, {.every = 2});
    for (int i = 0; i < (group.rank() == 1 ? 1 : 2); ++i) {
      local.begin_step();
      counter->set(1);
      local.end_step();
    }
    if (group.rank() == 1) local.settle();
  });
  EXPECT_THAT(error, HasSubstr("rank 1 settles after step 1, and rank 0 ends step 2"));
}

TEST(LocalSteps, ThatOneRankLeavesOutAreFoundByTheNextCollective) {
  const auto body = [](comm::Group& group) {
    auto counter = make_counter();
    LocalSteps local(*counter, group, {.every = 2});
    for (int i = 0; i < (group.rank() == 1 ? 1 : 2); ++i) {
      local.begin_step();
      local.end_step();
    }
    group.barrier("end of the loop").wait();
  };
  const auto error =
      error_of([&] { test::run_ranks(3, body, {.limits = {.timeout = std::chrono::seconds(2)}}); });
  // The simulated GPUs know only who waits.
  EXPECT_THAT(error, HasSubstr(on_device() ? "waited 2 s" : "rank 1"));
}

TEST(LocalSteps, RefuseOptionsThatDifferBetweenRanks) {
  const auto error = error_on_each_of_three_ranks([](comm::Group& group) {
    auto counter = make_counter();
    const LocalSteps local(*counter, group, {.every = group.rank() == 2 ? 5 : 4});
  });
  EXPECT_THAT(error, AllOf(HasSubstr("different options of local steps"), HasSubstr("rank 2 has"),
                           HasSubstr("every 5")));
}

TEST(LocalSteps, RefuseOptionsThatOneRankHasOutOfRange) {
  const auto error = error_on_each_of_three_ranks([](comm::Group& group) {
    auto counter = make_counter();
    const LocalSteps local(*counter, group, {.every = group.rank() == 2 ? 0 : 4});
  });
  EXPECT_THAT(error, testing::StartsWith("local steps need"));
}

TEST(LocalSteps, RefuseModelsThatTheyCannotAverage) {
  EXPECT_THAT(error_on_each_of_three_ranks([](comm::Group& group) {
                auto net = on_test_device(torch::nn::Linear(2, 2));
                net->to(torch::kBFloat16);
                const LocalSteps local(*net, group, {});
              }),
              HasSubstr("average float32 and float64 parameters, and 'weight' is"));
  EXPECT_THAT(error_on_each_of_three_ranks([](comm::Group& group) {
                auto net = on_test_device(torch::nn::Sequential(SyncBatchNorm(2)));
                connect_sync_batch_norm(*net, group);
                const LocalSteps local(*net, group, {});
              }),
              HasSubstr("SyncBatchNorm makes all ranks wait"));
}

TEST(LocalSteps, RefuseAStepWithTheMeanOfTheRanks) {
  const auto error = error_on_each_of_three_ranks([](comm::Group& group) {
    auto counter = make_counter();
    LocalSteps local(*counter, group, {.every = 10});
    local.begin_step();
    local.end_step();
    local.settle();
    local.end_step();
  });
  EXPECT_THAT(error, HasSubstr("call begin_step() before each step"));
}

// What an average does not reach, it cannot bring together again.
TEST(LocalSteps, CompareAllParametersAfterAnAverage) {
  const auto drift = [](std::int64_t check_every) {
    return error_of_three_ranks([=](comm::Group& group) {
      auto counter = make_counter();
      LocalSteps local(*counter, group, {.every = 2, .check_parameters_every = check_every});
      for (int i = 0; i < 4; ++i) {
        local.begin_step();
        const torch::NoGradGuard no_grad;
        if (group.rank() == 1) counter->frozen.fill_(7);
        local.end_step();
      }
    });
  };
  EXPECT_THAT(drift(4), AllOf(HasSubstr("no longer the same on all ranks at the average after step "
                                        "4: rank 1 (first in 'frozen')")));
  EXPECT_EQ(drift(0), "");
}

// In the middle of a round: what is saved continues bitwise.
TEST(LocalSteps, ContinueFromTheirState) {
  test::run_ranks(2, [](comm::Group& group) {
    const LocalStepsOptions options{.every = 3, .outer = {.kind = Outer::nesterov}};
    const auto advance = [&](Counter& counter, LocalSteps& local) {
      local.begin_step();
      counter->set(counter->number() * 0.5 + group.rank() + 1);
      local.end_step();
    };
    auto whole = make_counter();
    auto first = make_counter();
    auto second = make_counter();
    LocalSteps of_whole(*whole, group, options);
    LocalSteps of_first(*first, group, options);
    LocalSteps of_second(*second, group, options);
    for (int i = 0; i < 9; ++i) advance(whole, of_whole);
    for (int i = 0; i < 5; ++i) advance(first, of_first);
    of_first.settle();
    const auto state = of_first.state();
    EXPECT_EQ(state.own.size(), 3);
    EXPECT_EQ(state.start.size(), 1);
    EXPECT_EQ(state.velocity.size(), 1);
    of_second.restore(of_first.steps(), state);
    for (int i = 5; i < 9; ++i) advance(second, of_second);
    EXPECT_EQ(second->number(), whole->number());
    EXPECT_TRUE(of_second.state().own.empty()) << "all ranks have the same after an average";
    EXPECT_TRUE(of_second.state().start.empty());
    EXPECT_EQ(of_second.state().velocity.size(), 1);
  });
}

}  // namespace
}  // namespace ddp::test
