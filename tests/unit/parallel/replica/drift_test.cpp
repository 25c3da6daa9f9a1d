// SPDX-License-Identifier: Apache-2.0
// Detection of replicas that have diverged, with the name of the rank or the parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "ddp_runtime/parallel/replica/same_parameters.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// An action of one rank that the others do not take.
struct Drift {
  const char* name;
  int rank;
  void (*act)(Branches& net, GradientStep& step, torch::optim::SGD& optimizer, bool is_it);
  const char* told;
};

void leave_out_apply(Branches&, GradientStep& step, torch::optim::SGD& optimizer, bool is_it) {
  if (!is_it) step.apply(optimizer);
}

void use_another_learning_rate(Branches&, GradientStep& step, torch::optim::SGD& optimizer,
                               bool is_it) {
  if (is_it) optimizer.param_groups()[0].options().set_lr(0.11);
  step.apply(optimizer);
}

void write_to_a_parameter(Branches& net, GradientStep& step, torch::optim::SGD& optimizer,
                          bool is_it) {
  step.apply(optimizer);
  const torch::NoGradGuard no_grad;
  if (is_it) net->b->bias[1].add_(1e-6);
}

class DriftingReplicas : public testing::TestWithParam<Drift> {
 protected:
  static void train(comm::Group& group, int steps, std::int64_t check_every, bool check_at_end) {
    const Drift& drift = GetParam();
    auto net = make_branches();
    auto options = small_buckets();
    options.check_parameters_every = check_every;
    DistributedDataParallel replica(*net, group, options);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int i = 0; i < steps; ++i) {
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
      drift.act(net, step, optimizer, group.rank() == drift.rank && i == 1);
    }
    if (check_at_end) replica.require_same_parameters();
  }
};

TEST_P(DriftingReplicas, AreFoundByTheStepAgreement) {
  const auto error = error_of_three_ranks([](auto& group) { train(group, 6, 3, false); });
  EXPECT_THAT(error, AllOf(HasSubstr("no longer the same on all ranks in step 3: "),
                           HasSubstr(GetParam().told)));
}

TEST_P(DriftingReplicas, AreFoundBeforeACheckpoint) {
  const auto error = error_of_three_ranks([](auto& group) { train(group, 2, 100, true); });
  EXPECT_THAT(error, AllOf(HasSubstr("no longer the same on all ranks after step 2: "),
                           HasSubstr(GetParam().told)));
}

TEST_P(DriftingReplicas, AreAcceptedIfTheCheckIsOff) {
  EXPECT_THAT(error_of_three_ranks([](auto& group) { train(group, 6, 0, true); }), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Causes, DriftingReplicas,
    testing::Values(Drift{"left_out_apply", 1, leave_out_apply,
                          "rank 1 (first in 'a.weight') differs from rank 0 and 1 other;"},
                    Drift{"another_learning_rate", 2, use_another_learning_rate,
                          "rank 2 (first in 'a.weight') differs from rank 0 and 1 other;"},
                    Drift{"rank_0_wrote_to_a_parameter", 0, write_to_a_parameter,
                          "rank 0 (first in 'b.bias') differs from rank 1 and 1 other;"}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(SameParameters, ManyDifferingRanksAreCounted) {
  if (on_device()) GTEST_SKIP() << "needs 24 ranks, and the fake device has 4 devices";
  const auto error = error_of([] {
    test::run_ranks(24, [](comm::Group& group) {
      const NamedTensor own{"w",
                            on_test_device(torch::full({3}, group.rank() < 12 ? 0 : group.rank()))};
      require_same_parameters(group, {&own, 1}, "here");
    });
  });
  EXPECT_THAT(error, AllOf(HasSubstr("rank 12 (first in 'w'), rank 13"),
                           HasSubstr("rank 19 (first in 'w'), 4 more differ from rank 0 and 11 "
                                     "others;")));
}

TEST(Checksum, DependsOnEveryBitAndTheOrder) {
  const auto of = [](const torch::Tensor& tensor) {
    const NamedTensor named{"t", tensor};
    return checksum_of({&named, 1});
  };
  const auto values =
      on_test_device(torch::arange(37, torch::kFloat32));  // more than one round, and a remainder
  const auto whole = of(values);
  EXPECT_EQ(of(values.clone()), whole);
  EXPECT_GE(whole, 0);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      auto flipped = values.clone();
      flipped.view(torch::kInt32)[i].bitwise_xor_(static_cast<std::int32_t>(1U << bit));
      EXPECT_NE(of(flipped), whole) << "value " << i << ", bit " << bit;
    }
  }
  for (const std::int64_t other : {1, 2, 16, 17}) {
    auto signs = values.clone();
    signs[1].neg_();
    signs[1 + other].neg_();
    EXPECT_NE(of(signs), whole) << "two signs, " << other << " apart";
    auto swapped = values.clone();
    swapped[1] = values[1 + other];
    swapped[1 + other] = values[1];
    EXPECT_NE(of(swapped), whole) << "two values, " << other << " apart";
  }
  EXPECT_NE(of(on_test_device(torch::zeros({8}))), of(on_test_device(torch::zeros({9}))));
  EXPECT_EQ(of(values.view({1, 37}).expand({2, 37})), of(torch::stack({values, values})));
}

struct Change {
  const char* name;
  void (*before)(Branches& net);
  void (*after)(Branches& net);
  const char* told;
  bool fine_if_unused_is_allowed = false;
};

class ChangedAfterWrapping : public testing::TestWithParam<std::tuple<Change, int>> {
 protected:
  static std::string error(bool allow_unused) {
    const auto& change = std::get<Change>(GetParam());
    const int ranks = std::get<int>(GetParam());
    return error_of([&] {
      test::run_ranks(ranks, [&](comm::Group& group) {
        auto net = make_branches();
        change.before(net);
        auto options = small_buckets();
        options.allow_unused = allow_unused;
        DistributedDataParallel replica(*net, group, options);
        change.after(net);
        auto step = replica.begin_step();
        const auto type = net->a->weight.scalar_type();
        step.backward(loss_of(net->forward(input_of(group.rank()).to(type), "abc")));
      });
    });
  }
};

TEST_P(ChangedAfterWrapping, IsAnErrorThatNamesTheParameter) {
  const auto& change = std::get<0>(GetParam());
  EXPECT_THAT(error(false), AllOf(HasSubstr(change.told), HasSubstr("change the model first")));
}

TEST_P(ChangedAfterWrapping, IsAnErrorEvenIfParametersMayBeUnused) {
  const auto& change = std::get<0>(GetParam());
  if (change.fine_if_unused_is_allowed) {
    EXPECT_THAT(error(true), IsEmpty());
  } else {
    EXPECT_THAT(error(true), HasSubstr(change.told));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Changes, ChangedAfterWrapping,
    testing::Combine(
        testing::Values(
            Change{"unfrozen", [](Branches& net) { net->b->weight.requires_grad_(false); },
                   [](Branches& net) { net->b->weight.requires_grad_(true); },
                   "parameter 'b.weight' was unfrozen after"},
            Change{"frozen", [](Branches&) {},
                   [](Branches& net) { net->b->weight.requires_grad_(false); },
                   "parameter 'b.weight' was frozen after", true},
            Change{"added", [](Branches&) {},
                   [](Branches& net) {
                     net->register_parameter("scale", on_test_device(torch::ones({1})));
                   },
                   "parameter 'scale' was added after"},
            Change{"removed",
                   [](Branches& net) {
                     net->register_module("d", on_test_device(torch::nn::Linear(2, 2)));
                   },
                   [](Branches& net) { net->unregister_module("d"); },
                   "parameter 'd.weight' was removed from the module after"},
            Change{"to_double", [](Branches&) {}, [](Branches& net) { net->to(torch::kFloat64); },
                   "parameter 'a.weight' was converted from Float to Double after"},
            Change{"reshaped", [](Branches&) {},
                   [](Branches& net) {
                     net->c->weight.set_data(on_test_device(torch::ones({3, 4, 1})));
                   },
                   "parameter 'c.weight' was reshaped from [3, 4] to [3, 4, 1] after"}),
        testing::Values(1, 2)),
    [](const auto& param_info) {
      return std::string(std::get<0>(param_info.param).name) + "_on_" +
             std::to_string(std::get<1>(param_info.param));
    });

TEST(ParameterMovedLater, IsNamed) {
  if (!on_device()) GTEST_SKIP() << "there is no other device";
  for (const int ranks : {1, 2}) {
    EXPECT_THAT(error_of([&] {
                  test::run_ranks(ranks, [&](comm::Group& group) {
                    auto net = Branches();
                    DistributedDataParallel replica(*net, group);
                    move_to_test_device(*net);
                    replica.begin_step();
                  });
                }),
                AllOf(HasSubstr("parameter 'a.weight' was moved from cpu to "),
                      HasSubstr("change the model first")));
  }
}

TEST(ParameterAddedLater, IsFoundByALaterComparison) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_branches();
                auto options = small_buckets();
                options.check_parameters_every = 3;
                DistributedDataParallel replica(*net, group, options);
                for (int i = 0; i < 3; ++i) {
                  auto step = replica.begin_step();
                  step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
                  if (i == 0) net->register_parameter("scale", on_test_device(torch::ones({1})));
                }
              }),
              HasSubstr("parameter 'scale' was added after"));
}

TEST(UnsupportedTraining, LbfgsIsRefused) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                torch::optim::LBFGS optimizer(net->parameters());
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
                step.apply(optimizer);
              }),
              AllOf(HasSubstr("LBFGS"), HasSubstr("use SGD, Adam")));
}

// A single rank does not fail where several ranks would; it prints one warning.
TEST(WorldOfOne, WarnsAboutUnusedParameters) {
  const auto warned = [](bool allow_unused, const char* used) {
    testing::internal::CaptureStderr();
    test::run_ranks(1, [&](comm::Group& group) {
      auto net = make_branches();
      DistributedDataParallel replica(*net, group, {.buckets = {}, .allow_unused = allow_unused});
      for (int i = 0; i < 2; ++i) {
        auto step = replica.begin_step();
        step.backward(loss_of(net->forward(input_of(0), used)));
      }
    });
    return testing::internal::GetCapturedStderr();
  };
  const auto text = warned(false, "ac");
  EXPECT_THAT(text, AllOf(HasSubstr("warning: on more than one rank this is an error"),
                          HasSubstr("2 of 6 parameters (b.weight, b.bias)")));
  EXPECT_EQ(text.find("warning"), text.rfind("warning"));
  EXPECT_THAT(warned(true, "ac"), IsEmpty());
  EXPECT_THAT(warned(false, "abc"), IsEmpty());
}

}  // namespace
}  // namespace ddp::test
