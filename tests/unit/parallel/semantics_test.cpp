// SPDX-License-Identifier: Apache-2.0
// Requirements that real models place on a reducer: parameters that are unused, shared, or get
// several gradients; data that ends earlier on some ranks; buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns the sum of the gradients of one process that runs all micro-batches of all ranks, equally
// weighted.
std::map<std::string, torch::Tensor> reference(const std::vector<std::vector<std::string>>& use) {
  auto net = make_branches();
  std::size_t parts = 0;
  for (const auto& of_rank : use) parts += of_rank.size();
  for (std::size_t rank = 0; rank < use.size(); ++rank) {
    for (const auto& used : use[rank]) {
      const auto loss = loss_of(net->forward(input_of(static_cast<int>(rank)), used));
      loss.backward(torch::full_like(loss, 1.0 / static_cast<double>(parts)));
    }
  }
  return gradients_of(*net);
}

// use[rank][micro_batch]: the branches. Runs three steps, so that later steps use what the first
// one learned.
void check_unused(const std::vector<std::vector<std::string>>& use, DataParallelOptions options) {
  const auto expected = reference(use);
  test::run_ranks(static_cast<int>(use.size()), [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group, options);
    const auto& mine = use[static_cast<std::size_t>(group.rank())];
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto step = replica.begin_step(static_cast<int>(mine.size()));
      for (const auto& used : mine) {
        step.backward(loss_of(net->forward(input_of(group.rank()), used)));
      }
      expect_close(gradients_of(*net), expected);
    }
  });
}

struct UnusedCase {
  const char* name;
  std::vector<std::vector<std::string>> use;
};

class UnusedParameters : public testing::TestWithParam<UnusedCase> {};

TEST_P(UnusedParameters, GradientsEqualThoseOfOneProcess) {
  auto options = small_buckets();
  options.allow_unused = true;
  check_unused(GetParam().use, options);
}

TEST_P(UnusedParameters, WorkInOneBucketAndWithAStaticGraph) {
  DataParallelOptions options;
  options.static_graph = true;
  check_unused(GetParam().use, options);
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, UnusedParameters,
    testing::Values(UnusedCase{"all_used", {{"abc"}, {"abc"}}},
                    UnusedCase{"by_no_rank", {{"ab"}, {"ab"}}},
                    UnusedCase{"by_one_rank", {{"abc"}, {"ac"}}},
                    UnusedCase{"each_another", {{"ab"}, {"bc"}, {"a"}}},
                    // pytorch/pytorch#69031: used early in the step, not in its last micro-batch
                    UnusedCase{"only_in_the_first_micro_batch", {{"abc", "a"}, {"ab", "a"}}},
                    UnusedCase{"nothing_in_common", {{"a", "b"}, {"b", "c"}}}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(UnusedParameters, AreNamedInAnErrorUnlessAllowed) {
  const auto text = error_of<RuntimeError>([] {
    test::run_ranks(2, [](comm::Group& group) {
      auto net = make_branches();
      DistributedDataParallel replica(*net, group);
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(0), group.rank() == 0 ? "abc" : "ab")));
    });
  });
  EXPECT_THAT(text, AllOf(HasSubstr("no gradient for 2 of 6 parameters (c.weight, c.bias)"),
                          HasSubstr("allow_unused")));
}

TEST(UnusedParameters, ChangingGraphIsNotStatic) {
  const auto text = error_of<RuntimeError>([] {
    test::run_ranks(2, [](comm::Group& group) {
      auto net = make_branches();
      auto options = small_buckets();
      options.static_graph = true;
      DistributedDataParallel replica(*net, group, options);
      for (const char* used : {"abc", "ab"}) {
        auto step = replica.begin_step();
        step.backward(loss_of(net->forward(input_of(0), used)));
      }
    });
  });
  EXPECT_THAT(text, AllOf(HasSubstr("c.weight"), HasSubstr("static_graph")));
}

TEST(UnusedParameters, IgnoredOutputHasNoEffect) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group);
    replica.begin_step();  // abandoned on all ranks
    net->forward(input_of(0), "abc");
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
    EXPECT_EQ(gradients_of(*net).size(), 6U);
  });
}

// One weight used by two layers, registered twice.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("embedding", torch::randn({4, 4}));
    register_parameter("head", weight);
    bias = register_parameter("bias", torch::randn({4}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::mm(torch::tanh(torch::mm(x, weight) + bias), weight.t());
  }
  torch::Tensor weight;
  torch::Tensor bias;
};
TORCH_MODULE(Tied);

TEST(DataParallelSemantics, TiedWeightsAreReducedOnce) {
  auto alone = seeded([] { return Tied(); });
  for (int rank = 0; rank < 2; ++rank) {
    const auto loss = loss_of(alone->forward(input_of(rank)));
    loss.backward(torch::full_like(loss, 0.5));
  }
  const auto expected = gradients_of(*alone);
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = seeded([] { return Tied(); });
    DistributedDataParallel replica(*net, group, small_buckets());
    EXPECT_EQ(replica.bucket_count(), 2U);
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()))));
    expect_close(gradients_of(*net), expected);
  });
}

// A layer in double precision after one in single precision, which cannot share a bucket.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    register_module("single", single);
    register_module("twice", twice);
    twice->to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return twice(torch::tanh(single(x)).to(torch::kFloat64));
  }
  torch::nn::Linear single{4, 3};
  torch::nn::Linear twice{3, 2};
};
TORCH_MODULE(Mixed);

TEST(DataParallelSemantics, GradientsOfDifferentTypesHaveSeparateBuckets) {
  auto alone = seeded([] { return Mixed(); });
  for (int rank = 0; rank < 3; ++rank) {
    const auto loss = loss_of(alone->forward(input_of(rank)));
    loss.backward(torch::full_like(loss, 1.0 / 3));
  }
  const auto expected = gradients_of(*alone);
  test::run_ranks(3, [&](comm::Group& group) {
    auto net = seeded([] { return Mixed(); });
    DistributedDataParallel replica(*net, group);
    EXPECT_EQ(replica.bucket_count(), 2U);
    for (int i = 0; i < 2; ++i) {
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(group.rank()))));
      expect_close(gradients_of(*net), expected);
    }
    EXPECT_EQ(net->twice->weight.grad().scalar_type(), torch::kFloat64);
  });
}

TEST(DataParallelSemantics, TypeThatCannotBeAveragedIsNamed) {
  const auto error = [](int ranks, bool frozen) {
    return error_of([&] {
      test::run_ranks(ranks, [&](comm::Group& group) {
        auto net = make_branches();
        const auto complex = torch::empty({3}, torch::kComplexHalf);
        net->register_parameter("phase", on_test_device(complex), !frozen);
        const DistributedDataParallel replica(*net, group);
      });
    });
  };
  EXPECT_THAT(error(2, false), AllOf(HasSubstr("parameter 'phase' is of type ComplexHalf"),
                                     HasSubstr("make it ComplexFloat")));
  EXPECT_EQ(error(2, true), "");
  EXPECT_EQ(error(1, false), "");
}

TEST(DataParallelSemantics, FrozenParametersAreNotSent) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    for (auto& p : net->b->parameters()) p.requires_grad_(false);
    DistributedDataParallel replica(*net, group, small_buckets());
    EXPECT_EQ(replica.bucket_count(), 4U);
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
    EXPECT_FALSE(net->b->weight.grad().defined());
  });
}

TEST(DataParallelSemantics, BucketsFollowTheActualBackwardOrder) {
  // Registered in reverse order of use, so the first plan has exactly the wrong order.
  struct BackwardsImpl : torch::nn::Module {
    BackwardsImpl() {
      register_module("last", last);
      register_module("middle", middle);
      register_module("first", first);
    }
    torch::Tensor forward(const torch::Tensor& x) {
      return last(torch::tanh(middle(torch::tanh(first(x)))));
    }
    torch::nn::Linear first{torch::nn::LinearOptions(4, 4).bias(false)};
    torch::nn::Linear middle{torch::nn::LinearOptions(4, 4).bias(false)};
    torch::nn::Linear last{torch::nn::LinearOptions(4, 4).bias(false)};
  };
  std::vector<std::map<std::string, torch::Tensor>> results;
  for (const bool rebuild : {false, true}) {
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = seeded([] { return std::make_shared<BackwardsImpl>(); });
      auto options = small_buckets();
      options.rebuild_buckets = rebuild;
      DistributedDataParallel replica(*net, group, options);
      std::string first_sent;
      for (int i = 0; i < 3; ++i) {
        auto step = replica.begin_step(2);
        for (int m = 0; m < 2; ++m) {
          step.backward(loss_of(net->forward(input_of(2 * m + group.rank()))));
        }
        // On a device, the collectives may not have ended yet.
        if (!on_device()) first_sent = replica.communication().front().label;
      }
      if (group.rank() != 0) return;
      if (!on_device()) {
        EXPECT_THAT(first_sent, HasSubstr(rebuild ? "last.weight" : "first.weight"));
      }
      results.push_back(gradients_of(*net));
    });
  }
  // Accumulation across a rebuild loses nothing (InfiniTensor/InfiniTrain#183).
  expect_close(results[0], results[1]);
}

TEST(DataParallelSemantics, ClippingByGlobalNormEqualsThatOfOneProcess) {
  auto alone = make_branches();
  for (int rank = 0; rank < 2; ++rank) {
    const auto loss = loss_of(alone->forward(input_of(rank), "abc"));
    loss.backward(torch::full_like(loss, 0.5));
  }
  const double norm = torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.01);
  ASSERT_GT(norm, 0.1);  // otherwise clipping would have no effect
  const auto expected = gradients_of(*alone);
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group, small_buckets());
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
    EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(net->parameters(), 0.01), norm, 1e-4 * norm);
    expect_close(gradients_of(*net), expected);
  });
}

TEST(DataParallelSemantics, BuffersFollowRankZero) {
  for (const bool broadcast : {true, false}) {
    test::run_ranks(2, [&](comm::Group& group) {
      auto norm = on_test_device(torch::nn::BatchNorm1d(4));
      DataParallelOptions options;
      options.broadcast_buffers = broadcast;
      DistributedDataParallel replica(*norm, group, options);
      for (int i = 0; i < 2; ++i) {
        auto step = replica.begin_step();
        step.backward(loss_of(norm->forward(input_of(10 * group.rank()))));
      }
      replica.begin_step();
      const float mean = norm->running_mean[0].item<float>();
      if (group.rank() != 1) return;
      EXPECT_EQ(mean < 1, broadcast) << mean;
    });
  }
}

TEST(UnevenData, CanBeDividedByAllRanks) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group);
    auto step = replica.begin_uneven_step(group.rank() == 0, 1,
                                          DistributedDataParallel::DivideBy::all_ranks);
    const auto loss = loss_of(net->forward(input_of(0), "abc"));
    if (step->has_data()) {
      step->backward(loss);
    } else {
      step->without_data();
    }
    const auto reduced = gradients_of(*net);
    for (auto& p : net->parameters()) p.mutable_grad().reset();
    auto again = make_branches();
    loss_of(again->forward(input_of(0), "abc")).backward();
    EXPECT_TRUE(torch::allclose(reduced.at("a.weight"), again->a->weight.grad().cpu() / 2));
  });
}

// Buckets are rebuilt after the first step, in an order that is unknown to a rank without data in
// that step. `batches` is by rank: the ranks run out of data one after another, or have
// none from the start.
struct Uneven {
  const char* name;
  std::vector<int> batches;
  bool static_graph = false;
};

class UnevenFromTheStart : public testing::TestWithParam<Uneven> {};

TEST_P(UnevenFromTheStart, EqualsOneProcessThatSeesTheBatchesOfEachStep) {
  const auto& c = GetParam();
  const int most = *std::max_element(c.batches.begin(), c.batches.end());
  auto alone = make_branches();
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.1);
  for (int s = 0; s < most; ++s) {
    alone_optimizer.zero_grad();
    const auto with_data =
        std::count_if(c.batches.begin(), c.batches.end(), [&](int b) { return b > s; });
    for (std::size_t rank = 0; rank < c.batches.size(); ++rank) {
      if (c.batches[rank] <= s) continue;
      const auto loss = loss_of(alone->forward(input_of(static_cast<int>(rank)), "abc"));
      loss.backward(torch::full_like(loss, 1.0 / static_cast<double>(with_data)));
    }
    alone_optimizer.step();
  }
  const auto expected = values_of(*alone);
  test::run_ranks(static_cast<int>(c.batches.size()), [&](comm::Group& group) {
    auto net = make_branches();
    auto options = small_buckets();
    options.static_graph = c.static_graph;
    DistributedDataParallel replica(*net, group, options);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    int left = c.batches[static_cast<std::size_t>(group.rank())];
    int steps = 0;
    while (auto step = replica.begin_uneven_step(left > 0)) {
      if (step->has_data()) {
        --left;
        step->backward(loss_of(net->forward(input_of(group.rank()), "abc")));
      } else {
        step->without_data();
      }
      step->apply(optimizer);
      ++steps;
    }
    EXPECT_EQ(steps, most);
    EXPECT_EQ(replica.gradient_order().size(), most > 0 ? 6U : 0U);
    for (const auto& p : net->named_parameters()) {
      EXPECT_TRUE(torch::allclose(p.value().cpu(), expected.at(p.key()), 1e-5, 1e-6));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, UnevenFromTheStart,
                         testing::Values(Uneven{"one_more_on_each", {1, 2, 3}},
                                         Uneven{"first_rank_empty", {0, 3, 2}},
                                         Uneven{"middle_rank_empty", {3, 0, 3}},
                                         Uneven{"only_the_last_rank_has_data", {0, 0, 3}},
                                         Uneven{"no_rank_has_data", {0, 0, 0}},
                                         Uneven{"first_rank_empty_static", {0, 3, 2}, true},
                                         Uneven{"last_rank_empty_static", {3, 2, 0}, true}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

// A step in which no rank has data does not show the graph, so the next step must record it.
TEST(UnevenData, DoesNotLearnTheGraphFromAStepWithoutData) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group, small_buckets());
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int s = 0; s < 4; ++s) {
      auto step = replica.begin_step();
      if (s == 0) {
        step.without_data();
      } else {
        step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
      }
      step.apply(optimizer);
      EXPECT_EQ(replica.gradient_order().size(), s == 0 ? 0U : 6U);
    }
  });
}

TEST(UnevenData, BackwardOnARankWithoutDataIsRefused) {
  EXPECT_EQ(error_of_three_ranks([](comm::Group& group) {
              auto net = make_branches();
              DistributedDataParallel replica(*net, group);
              auto step = replica.begin_uneven_step(group.rank() != 1);
              step->backward(loss_of(net->forward(input_of(0), "abc")));
            }),
            "this rank has no data in this step; call without_data()");
}

}  // namespace
}  // namespace ddp::test
