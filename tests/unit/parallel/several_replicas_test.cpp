// SPDX-License-Identifier: Apache-2.0
// Losses that depend on several replicas, and backward passes with options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/errors.h"
#include "tests/unit/error_of.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;

struct Pair {
  torch::nn::Linear encoder{nullptr};
  torch::nn::Linear decoder{nullptr};
};

// The same values on all ranks, which are threads that share a generator of random numbers.
Pair make_pair_of_nets() {
  Pair nets{torch::nn::Linear(5, 3), torch::nn::Linear(3, 5)};
  const torch::NoGradGuard no_grad;
  double value = 0;
  for (auto* const net : {&nets.encoder, &nets.decoder}) {
    for (auto& parameter : (*net)->parameters()) {
      parameter.copy_(torch::arange(parameter.numel()).reshape(parameter.sizes()) * 0.03 - value);
      value += 0.1;
    }
    test::move_to_test_device(**net);
  }
  return nets;
}

torch::Tensor rows_of(int number) {
  return on_test_device(torch::arange(10).reshape({2, 5}).to(torch::kFloat32) * 0.1 * (number + 1));
}

torch::Tensor error_of_pair(Pair& nets, const torch::Tensor& x) {
  return (nets.decoder(torch::tanh(nets.encoder(x))) - x).pow(2).mean();
}

std::vector<torch::Tensor> gradients_of_pair(const Pair& nets) {
  std::vector<torch::Tensor> gradients;
  for (const auto& net : {nets.encoder, nets.decoder}) {
    for (const auto& parameter : net->parameters()) {
      gradients.push_back(parameter.grad().cpu().clone());
    }
  }
  return gradients;
}

void expect_all_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-5, 1e-7));
}

// One process with the micro-batches of all ranks.
std::vector<torch::Tensor> expected_of(int ranks, int micro_batches) {
  auto nets = make_pair_of_nets();
  for (int i = 0; i < ranks * micro_batches; ++i) {
    (error_of_pair(nets, rows_of(i)) / (ranks * micro_batches)).backward();
  }
  return gradients_of_pair(nets);
}

TEST(SeveralReplicas, OneLossReducesTheGradientsOfAll) {
  for (const int ranks : {1, 2, 3}) {
    for (const int micro_batches : {1, 2}) {
      const auto expected = expected_of(ranks, micro_batches);
      test::run_ranks(ranks, [&](comm::Group& group) {
        auto nets = make_pair_of_nets();
        DistributedDataParallel encoder(*nets.encoder, group.channel("encoder"));
        DistributedDataParallel decoder(*nets.decoder, group.channel("decoder"));
        for (int repeat = 0; repeat < 3; ++repeat) {
          auto first = encoder.begin_step(micro_batches);
          auto second = decoder.begin_step(micro_batches);
          GradientStep* const steps[] = {&first, &second};
          for (int i = 0; i < micro_batches; ++i) {
            backward(error_of_pair(nets, rows_of(group.rank() * micro_batches + i)), steps);
          }
          EXPECT_TRUE(first.complete() && second.complete());
          expect_all_close(gradients_of_pair(nets), expected);
        }
      });
    }
  }
}

TEST(SeveralReplicas, StepsThatDifferAreRefused) {
  test::run_ranks(2, [](comm::Group& group) {
    auto nets = make_pair_of_nets();
    DistributedDataParallel encoder(*nets.encoder, group.channel("encoder"));
    DistributedDataParallel decoder(*nets.decoder, group.channel("decoder"));
    auto first = encoder.begin_step(1);
    auto second = decoder.begin_step(2);
    const auto loss = error_of_pair(nets, rows_of(0));
    const auto error = [&](std::vector<GradientStep*> steps) {
      return error_of([&] { backward(loss, steps); });
    };
    EXPECT_THAT(error({}), HasSubstr("needs the steps of the replicas"));
    EXPECT_THAT(error({&first, &first}), HasSubstr("one step twice"));
    EXPECT_THAT(error({&first, &second}),
                HasSubstr("over 2 ranks and 1 micro-batches for one replica and over 2 and 2"));
  });
}

TEST(BackwardWithOptions, RetainsTheGraphForAnotherLoss) {
  const auto reference = [] {
    auto nets = make_pair_of_nets();
    for (int rank = 0; rank < 2; ++rank) {
      const auto y = nets.encoder(rows_of(rank));
      ((y.mean() + y.pow(2).mean()) / 4).backward();
    }
    std::vector<torch::Tensor> gradients;
    for (const auto& p : nets.encoder->parameters()) gradients.push_back(p.grad().cpu().clone());
    return gradients;
  }();
  test::run_ranks(2, [&](comm::Group& group) {
    auto nets = make_pair_of_nets();
    DistributedDataParallel replica(*nets.encoder, group);
    auto step = replica.begin_step(2);
    const auto y = nets.encoder(rows_of(group.rank()));
    step.backward(y.mean(), {.retain_graph = true});
    step.backward(y.pow(2).mean());
    std::vector<torch::Tensor> gradients;
    for (const auto& p : nets.encoder->parameters()) gradients.push_back(p.grad().cpu().clone());
    expect_all_close(gradients, reference);
  });
}

TEST(BackwardWithOptions, WeighsMicroBatches) {
  const auto weight_of_micro_batch = [](int i) { return i == 0 ? 0.5 : 1.5; };
  auto alone = make_pair_of_nets();
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 2; ++i) {
      (error_of_pair(alone, rows_of(2 * rank + i)) * (weight_of_micro_batch(i) / 4)).backward();
    }
  }
  const auto expected = gradients_of_pair(alone);
  test::run_ranks(2, [&](comm::Group& group) {
    auto nets = make_pair_of_nets();
    DistributedDataParallel encoder(*nets.encoder, group.channel("encoder"));
    DistributedDataParallel decoder(*nets.decoder, group.channel("decoder"));
    auto first = encoder.begin_step(2);
    auto second = decoder.begin_step(2);
    GradientStep* const steps[] = {&first, &second};
    for (int i = 0; i < 2; ++i) {
      backward(error_of_pair(nets, rows_of(2 * group.rank() + i)), steps,
               {.weight = weight_of_micro_batch(i)});
    }
    expect_all_close(gradients_of_pair(nets), expected);
  });
}

// A penalty on the gradient with respect to the inputs: its graph is part of the loss.
TEST(BackwardWithOptions, PenaltiesOnGradientsAreReduced) {
  const auto penalized = [](Pair& nets, int number) {
    auto x = rows_of(number).requires_grad_();
    const auto y = torch::tanh(nets.encoder(x)).sum();
    const auto gradient =
        torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return gradient.pow(2).mean() + y;
  };
  auto alone = make_pair_of_nets();
  for (int rank = 0; rank < 2; ++rank) (penalized(alone, rank) / 2).backward();
  test::run_ranks(2, [&](comm::Group& group) {
    auto nets = make_pair_of_nets();
    DistributedDataParallel replica(*nets.encoder, group);
    auto step = replica.begin_step();
    step.backward(penalized(nets, group.rank()));
    for (std::size_t i = 0; i < nets.encoder->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(nets.encoder->parameters()[i].grad().cpu(),
                                  alone.encoder->parameters()[i].grad().cpu(), 1e-5, 1e-7));
    }
  });
}

}  // namespace
}  // namespace ddp::test
