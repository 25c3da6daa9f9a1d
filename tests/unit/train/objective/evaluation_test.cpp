// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/objective/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/train/step/training_step.h"
#include "tests/unit/error_of.h"
#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

// The scores are the inputs, so loss and accuracy are known. Samples 0 to 6 have class i % 3; the
// first four have the highest score for the right class, with a margin of ln 2 and more, and the
// others do not.
TEST(Evaluate, AveragesOverAllSamplesForAnyNumberOfRanks) {
  const std::int64_t n = 7;
  auto inputs = torch::zeros({n, 3});
  auto targets = torch::zeros({n}, torch::kInt64);
  for (std::int64_t i = 0; i < n; ++i) {
    targets[i] = i % 3;
    inputs[i][i < 4 ? i % 3 : (i + 1) % 3] = 2.0;
  }
  const auto right = -2.0 + std::log(std::exp(2.0) + 2);
  const auto wrong = std::log(std::exp(2.0) + 2);
  const data::TensorDataset data(inputs, targets, 3);
  for (const int ranks : {1, 2, 3}) {
    test::run_ranks(ranks, [&](comm::Group& group) {
      auto unused = test::on_test_device(torch::nn::Linear(1, 1));
      const auto result = evaluate(group, *unused, {[](const torch::Tensor& x) { return x; }}, data,
                                   n, 2, amp::Precision::fp32);
      EXPECT_EQ(result.targets, n);
      EXPECT_DOUBLE_EQ(result.accuracy, 4.0 / 7);
      EXPECT_NEAR(result.loss, (4 * right + 3 * wrong) / 7, 1e-6);
      EXPECT_TRUE(unused->is_training()) << "evaluation must restore training mode";
    });
  }
}

TEST(Evaluate, EndsOnAllRanksIfOneAsksForIt) {
  const data::TensorDataset data(torch::zeros({7, 3}), torch::zeros({7}, torch::kInt64), 3);
  for (const int at : {0, 2}) {  // two of the ranks have three batches, one has two
    test::run_ranks(3, [&](comm::Group& group) {
      auto unused = test::on_test_device(torch::nn::Linear(1, 1));
      std::int64_t batches = 0;
      std::int64_t wish = 0;
      const Interruption interruption{[&] { wish = group.rank() == 2 && batches == at ? 1 : 0; },
                                      [&] {
                                        ++batches;
                                        return group.all_reduce_value(wish, comm::ReduceOp::max) ==
                                               1;
                                      }};
      const auto result = evaluate(group, *unused, {[](const torch::Tensor& x) { return x; }}, data,
                                   7, 1, amp::Precision::fp32, interruption);
      EXPECT_FALSE(result);
      EXPECT_EQ(batches, at + 1);
      EXPECT_TRUE(unused->is_training());
    });
  }
}

// So many scores that on the fake device, whose memory is small, copies in float32 have no room.
TEST(Evaluate, TakesManyScoresInHalfPrecision) {
  const std::int64_t n = 1 << 10;
  const std::int64_t classes = 1 << 14;
  auto targets = torch::zeros({n}, torch::kInt64);
  targets[1] = 7;
  targets[2] = -100;
  const data::TensorDataset data(torch::ones({n, 1}), targets, classes);
  const auto flat = [&](const torch::Tensor& x) {
    return x.to(torch::kBFloat16).expand({-1, classes}).contiguous();
  };
  test::run_ranks(1, [&](comm::Group& group) {
    auto unused = test::on_test_device(torch::nn::Linear(1, 1));
    const auto result = evaluate(group, *unused, {flat}, data, n, n, amp::Precision::fp32);
    EXPECT_EQ(result.targets, n - 1);
    EXPECT_NEAR(result.loss, std::log(classes), 1e-4);
    EXPECT_DOUBLE_EQ(result.accuracy, static_cast<double>(n - 2) / (n - 1));
  });
}

// A head after batch normalization, whose statistics each rank changes on its own during training.
struct NormalizedImpl : torch::nn::Module {
  NormalizedImpl() {
    register_module("norm", norm);
    register_module("head", head);
    const torch::NoGradGuard no_grad;
    head->weight.copy_(torch::eye(3));
    head->bias.zero_();
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(norm(x)); }
  torch::nn::BatchNorm1d norm{3};
  torch::nn::Linear head{3, 3};
};
TORCH_MODULE(Normalized);

data::TensorDataset seven_samples() {
  return {torch::arange(21, torch::kFloat32).view({7, 3}).sin(), torch::arange(7) % 3, 3};
}

Evaluation evaluate_all(comm::Group& group, Normalized& net, const data::Dataset& data) {
  return evaluate(group, *net, {[&](const torch::Tensor& x) { return net->forward(x); }}, data,
                  data.size(), 2, amp::Precision::fp32);
}

// A checkpoint holds rank 0's statistics. With those of another rank, the loss would be that of a
// model that no checkpoint holds.
TEST(Evaluate, UsesTheModelThatACheckpointHolds) {
  const auto data = seven_samples();
  const auto net_of_rank = [](int rank) {
    auto net = test::on_test_device(Normalized());
    net->norm->running_mean.fill_(0.5 * rank);
    net->norm->running_var.fill_(1.0 + rank);
    return net;
  };
  double alone = 0;
  test::run_ranks(1, [&](comm::Group& group) {
    auto net = net_of_rank(0);
    alone = evaluate_all(group, net, data).loss;
  });
  test::run_ranks(3, [&](comm::Group& group) {
    auto net = net_of_rank(group.rank());
    EXPECT_NEAR(evaluate_all(group, net, data).loss, alone, 1e-6) << group.rank();
  });
}

TEST(SynchronousStep, SettlesTheStatisticsOfBatchNorm) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = test::on_test_device(Normalized());
    profile::StepRecorder recorder;
    const Objective objective{[&](const torch::Tensor& x) { return net->forward(x); }};
    const auto step = make_training_step({group, *net, objective, recorder}, {});
    net->norm->running_mean.fill_(2.0 + group.rank());
    step->settle();
    EXPECT_TRUE(net->norm->running_mean.eq(2).all().item<bool>()) << group.rank();
  });
}

// Fine-tuning keeps batch normalization frozen by leaving it in evaluation mode.
TEST(Evaluate, RestoresEveryModuleMode) {
  const auto data = seven_samples();
  test::run_ranks(1, [&](comm::Group& group) {
    auto net = test::on_test_device(Normalized());
    net->norm->eval();
    evaluate_all(group, net, data);
    EXPECT_TRUE(net->is_training());
    EXPECT_TRUE(net->head->is_training());
    EXPECT_FALSE(net->norm->is_training()) << "a frozen module must stay frozen";
    net->eval();
    evaluate_all(group, net, data);
    EXPECT_FALSE(net->is_training());
    EXPECT_FALSE(net->head->is_training());
  });
}

TEST(Evaluate, RestoresEveryModuleModeIfForwardThrows) {
  const auto data = seven_samples();
  test::run_ranks(1, [&](comm::Group& group) {
    auto net = test::on_test_device(Normalized());
    net->norm->eval();
    const auto throws = [](const torch::Tensor&) -> torch::Tensor {
      throw std::runtime_error("thrown by the user");
    };
    EXPECT_EQ(error_of([&] { evaluate(group, *net, {throws}, data, 7, 2, amp::Precision::fp32); }),
              "thrown by the user");
    EXPECT_TRUE(net->is_training());
    EXPECT_TRUE(net->head->is_training());
    EXPECT_FALSE(net->norm->is_training());
  });
}

// The evaluation of a module without parameters, whose scores are `forward` of the inputs.
Evaluation evaluate_scores(const torch::Tensor& inputs, const std::vector<std::int64_t>& targets,
                           const Forward& forward,
                           amp::Precision precision = amp::Precision::fp32) {
  const data::TensorDataset data(inputs, torch::tensor(targets), inputs.size(1));
  Evaluation result{};
  test::run_ranks(1, [&](comm::Group& group) {
    auto unused = test::on_test_device(torch::nn::Linear(1, 1));
    result = evaluate(group, *unused, {forward}, data, data.size(), 1, precision);
  });
  return result;
}

torch::Tensor as_they_are(const torch::Tensor& x) {
  return x;
}

TEST(Evaluate, LeavesOutIgnoredTargets) {
  const auto inputs = torch::tensor({{5.0F, 0.0F}, {5.0F, 0.0F}, {0.0F, 5.0F}, {0.0F, 5.0F}});
  const auto result = evaluate_scores(inputs, {0, -100, 0, -100}, as_they_are);
  EXPECT_EQ(result.targets, 2);
  EXPECT_EQ(result.accuracy, 0.5);
  EXPECT_NEAR(result.loss, 2.5 + std::log1p(std::exp(-5)), 1e-5);
}

// In float32, the small losses after a large one would be lost.
TEST(Evaluate, SumsInDoublePrecision) {
  const float large = 1 << 25;
  const auto inputs = torch::tensor({{large, 0.0F}, {0.0F, 0.0F}, {0.0F, 0.0F}});
  const auto result = evaluate_scores(inputs, {1, 1, 1}, as_they_are);
  EXPECT_NEAR(result.loss * 3 - large, 2 * std::log(2), 1e-5);
}

TEST(Evaluate, RunsForwardInItsPrecisionAndWithoutAGraph) {
  const auto inputs = torch::ones({2, 2});
  for (const auto precision : {amp::Precision::fp32, amp::Precision::bf16}) {
    const auto forward = [&](const torch::Tensor& x) {
      EXPECT_FALSE(torch::GradMode::is_enabled());
      const auto scores = torch::mm(x, test::on_test_device(torch::ones({2, 2})));
      EXPECT_EQ(scores.scalar_type() == torch::kBFloat16, precision == amp::Precision::bf16);
      return scores;
    };
    EXPECT_NEAR(evaluate_scores(inputs, {0, 1}, forward, precision).loss, std::log(2), 1e-6);
  }
}

// In bfloat16, the loss would have two digits.
TEST(Evaluate, ComputesTheLossOfShortScoresInFloat32) {
  const auto to_short = [](const torch::Tensor& x) { return x.to(torch::kBFloat16); };
  EXPECT_NEAR(evaluate_scores(torch::ones({2, 2}), {0, 1}, to_short).loss, std::log(2), 1e-6);
}

// Each sample is a batch, whose target is its weight. The mean over no targets is not a number.
TEST(Evaluate, WeighsTheMeansOfAnOwnLoss) {
  const std::vector<float> weights{1, 0, 3};
  const data::TensorDataset data(torch::tensor({{1.0F}, {2.0F}, {3.0F}}), torch::tensor(weights),
                                 0);
  Objective objective;
  objective.forward = as_they_are;
  objective.loss = [](const torch::Tensor& outputs, const torch::Tensor& targets) {
    const auto precise = outputs.to(torch::kFloat64) + 1e-12;  // more than float32 can hold
    return (precise * targets.unsqueeze(1)).sum() / targets.sum();
  };
  objective.weight = [](const data::Batch& batch) { return batch.targets.sum().item<double>(); };
  test::run_ranks(1, [&](comm::Group& group) {
    auto unused = test::on_test_device(torch::nn::Linear(1, 1));
    const auto result =
        evaluate(group, *unused, objective, data, data.size(), 1, amp::Precision::fp32);
    EXPECT_EQ(result.targets, 4);
    EXPECT_NEAR(result.loss, (1.0 + 3 * 3) / 4 + 1e-12, 1e-14);
    EXPECT_TRUE(std::isnan(result.accuracy));
  });
}

TEST(Evaluate, ReportsEmptyEvaluationData) {
  const auto data = seven_samples();
  test::run_ranks(1, [&](comm::Group& group) {
    auto net = test::on_test_device(Normalized());
    EXPECT_THAT(error_of([&] {
                  evaluate(group, *net, {[&](const torch::Tensor& x) { return net->forward(x); }},
                           data, 0, 2, amp::Precision::fp32);
                }),
                HasSubstr("the evaluation data has no targets"));
  });
}

}  // namespace
}  // namespace ddp::train
