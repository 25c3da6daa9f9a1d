// SPDX-License-Identifier: Apache-2.0
// Training on the parameter server with ranks as threads: a comparison with synchronous training,
// and the options and models that are not supported.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "ddp_runtime/comm/p2p/run_ranks.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/parallel/asynchronous/stale_synchronous.h"
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"
#include "tests/unit/error_of.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

torch::nn::Sequential small_net() {
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(64, 16),
                            torch::nn::BatchNorm1d(16), torch::nn::ReLU(),
                            torch::nn::Linear(16, 10));
  const torch::NoGradGuard no_grad;
  double start = 0;
  for (auto& p : net->parameters()) {
    p.copy_(torch::sin(torch::arange(p.numel(), torch::kFloat32) + start++).view(p.sizes()) / 4);
  }
  return net;
}

class Asynchronous : public testing::Test {
 protected:
  Asynchronous() : data_(data::open_data("digits")) {
    torch::set_num_threads(1);
    options_.epochs = 2;
    options_.batch = 32;
    options_.optimizer.weight_decay = 0.01;
    options_.warmup_steps = 5;
  }

  // Every rank's parameters and buffers.
  std::vector<test::Values> train(int ranks) {
    std::vector<test::Values> states;
    for (auto& end : train_ranks(ranks, options_, data_, small_net)) {
      if (states.empty()) result_ = end.result;
      states.push_back(std::move(end.state));
    }
    return states;
  }

  TrainOptions options_;
  data::DataPair data_;
  RunResult result_;
};

// Covers momentum, weight decay of matrices only, accumulation, a changing rate, running means.
TEST_F(Asynchronous, WithoutStalenessEqualsSynchronousTrainingExceptForRounding) {
  options_.micro_batches = 2;
  for (const int ranks : {1, 3}) {
    options_.staleness.reset();
    const auto synchronous = train(ranks);
    options_.staleness = 0;
    const auto stale = train(ranks);
    for (const auto& end : stale)
      EXPECT_TRUE(test::same_bits(end, stale[0])) << "settle() must make all ranks the same";
    for (const auto& [name, value] : stale[0]) {
      EXPECT_TRUE(torch::allclose(value, synchronous[0].at(name), 1e-3, 1e-4))
          << name << " with " << ranks << " ranks";
    }
    EXPECT_EQ(nlohmann::json::parse(result_.report).at("asynchronous").at("largest_lead"), 0);
  }
}

TEST_F(Asynchronous, WithStalenessAllRanksEndWithTheSameTrainedModel) {
  options_.epochs = 10;
  options_.staleness = 4;
  const auto ends = train(4);
  for (const auto& end : ends) EXPECT_TRUE(test::same_bits(end, ends[0]));
  EXPECT_GT(result_.evaluation.accuracy, 0.85);
  EXPECT_LE(nlohmann::json::parse(result_.report).at("asynchronous").at("largest_lead"), 4);
}

TEST_F(Asynchronous, RefusesOptionsThatNeedAllGradientsAtOnce) {
  struct Case {
    const char* text;
    void (*ask)(TrainOptions&);
  };
  for (const auto& [text, ask] : std::vector<Case>{
           {"cannot be combined with --optimizer adam:",
            [](auto& o) { o.optimizer.name = "adam"; }},
           {"cannot be combined with --clip:", [](auto& o) { o.clip_norm = 1; }},
           {"cannot be combined with loss scaling:", [](auto& o) { o.loss_scale = 8; }},
           {"cannot be combined with loss scaling:",
            [](auto& o) { o.precision = amp::Precision::fp16; }},
           {"cannot be combined with parallel.ignore:",
            [](auto& o) { o.parallel.ignore = {"fc1.*"}; }},
           {"cannot be combined with static_graph:",
            [](auto& o) { o.parallel.static_graph = true; }},
           {"cannot be combined with --comm-hook:",
            [](auto& o) { o.parallel.hook = [](GradientBucket&) -> HookTask { co_return; }; }}}) {
    auto saved = options_;
    options_.staleness = 1;
    ask(options_);
    EXPECT_THAT(error_of([&] { train(2); }), HasSubstr(text));
    options_ = saved;
  }
}

TEST(StaleSynchronous, RefusesUnsupportedModels) {
  comm::run_ranks(2, [](comm::Group& group) {
    torch::nn::Sequential norm(torch::nn::Linear(4, 4), SyncBatchNorm(4));
    connect_sync_batch_norm(*norm, group);
    EXPECT_THAT(error_of([&] { StaleSynchronous(*norm, group, {}); }),
                HasSubstr("SyncBatchNorm makes all ranks wait"));
    torch::nn::Linear precise(2, 2);
    precise->to(torch::kFloat64);
    EXPECT_THAT(error_of([&] { StaleSynchronous(*precise, group, {}); }),
                HasSubstr("the parameter server keeps float32 in host memory, and weight is"));
  });
}

TEST(StaleSynchronous, ParameterWithoutGradientIsNamedUnlessAllowed) {
  comm::run_ranks(1, [](comm::Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
    const auto unused = net[1]->as<torch::nn::Linear>()->weight.detach().clone();
    const auto half = [&] { return net[0]->as<torch::nn::Linear>()->forward(torch::ones({1, 2})); };
    {
      StaleSynchronous replica(*net, group, {});
      replica.backward(half().sum());
      EXPECT_THAT(error_of([&] { replica.step(0.1); }), HasSubstr("1.weight got no gradient"));
    }
    StaleSynchronous replica(*net, group, {.allow_unused = true});
    replica.backward(half().sum());
    replica.step(0.1);
    replica.settle();
    replica.close();
    EXPECT_TRUE(torch::equal(net[1]->as<torch::nn::Linear>()->weight, unused));
  });
}

// Each rank sees different data, so running means diverge; settle() must restore rank 0's values.
TEST(StaleSynchronous, SettlesBuffersToo) {
  comm::run_ranks(3, [](comm::Group& group) {
    torch::nn::BatchNorm1d norm(2);
    StaleSynchronous replica(*norm, group, {.staleness = 2});
    for (int step = 0; step < 3; ++step) {
      const auto x = torch::arange(8, torch::kFloat32).view({4, 2}) * (group.rank() + 1);
      replica.backward(norm(x).pow(2).mean());
      replica.step(0.1);
    }
    const double before = norm->running_mean[0].item<double>();
    replica.settle();
    replica.close();
    const double mine = norm->running_mean[0].item<double>();
    double of_leader = group.rank() == 0 ? before : 0;
    of_leader = group.all_reduce_value(of_leader, comm::ReduceOp::sum);
    EXPECT_EQ(mine, of_leader);
    EXPECT_EQ(group.rank() == 0, before == of_leader) << "the buffers must have diverged";
  });
}

}  // namespace
}  // namespace ddp::train
