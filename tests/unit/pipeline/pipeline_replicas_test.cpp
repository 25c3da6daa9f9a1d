// SPDX-License-Identifier: Apache-2.0
// Several replicas of a pipeline, and weights that stages have in common.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/tensors/tensor_collectives.h"
#include "tests/unit/error_of.h"
#include "tests/unit/pipeline/staged_model.h"

namespace ddp::pipeline::test {
namespace {

using ddp::test::run_ranks;
using testing::ElementsAre;
using testing::HasSubstr;

// What replicas do in one process: each accumulates its gradients, then they are added up.
Gradients sum_of_replicas(int stages, const std::vector<std::vector<MicroBatch>>& batches) {
  Gradients sums;
  for (const auto& of_replica : batches) {
    const auto parts = make_parts(stages);
    accumulate(parts, of_replica, static_cast<int>(batches.size()));
    for (const auto& [name, gradient] : gradients_of(parts)) {
      sums[name] = sums.contains(name) ? sums.at(name) + gradient : gradient;
    }
  }
  return sums;
}

PipelineOptions two_replicas() {
  PipelineOptions options;
  options.replicas = 2;
  options.data_parallel.buckets = {40, 300};
  return options;
}

void expect_sum(int ranks, int stages, int micro_batches, const PipelineOptions& options) {
  comm::GroupOptions in_order;
  in_order.in_rank_order = true;
  const auto body = [&](comm::Group& group) {
    Pipeline pipe(group, stages_of(make_parts(stages)), loss_of, options);
    // Buckets are rebuilt after the first step.
    for (int i = 0; i < 3; ++i) {
      std::vector<std::vector<MicroBatch>> batches;
      for (int r = 0; r < options.replicas; ++r) {
        batches.push_back(micro_batches_of(micro_batches, 10 * i + micro_batches * r));
      }
      auto step = pipe.begin_step(micro_batches);
      step.backward(batches[static_cast<std::size_t>(pipe.replica())]);
      const auto gradients = gradients_of(pipe);
      EXPECT_EQ(gradients.size(), pipe.parameters().size());
      expect_same_bits(gradients, sum_of_replicas(stages, batches),
                       std::string(to_string(options.schedule)));
    }
  };
  ddp::test::run_ranks(ranks, body, in_order);
}

class PipelineReplicas : public PipelineTest {};
class TiedWeightsOfStages : public PipelineTest {};

TEST_F(PipelineReplicas, HaveTheGradientsOfOneProcess) {
  expect_sum(4, 2, 1, two_replicas());
  expect_sum(4, 2, 3, two_replicas());
  auto gpipe = two_replicas();
  gpipe.schedule = Schedule::gpipe;
  expect_sum(4, 2, 3, gpipe);
  auto interleaved = two_replicas();
  interleaved.schedule = Schedule::interleaved;
  expect_sum(4, 4, 2, interleaved);
  expect_sum(2, 3, 2, interleaved);  // one rank per replica
}

// With one micro-batch per replica, the sum over replicas is that over micro-batches.
TEST_F(PipelineReplicas, AreMicroBatchesOfOneProcess) {
  run_ranks(4, [](comm::Group& group) {
    const auto batches = micro_batches_of(2);
    const auto parts = make_parts(2);
    accumulate(parts, batches);
    Pipeline pipe(group, stages_of(make_parts(2)), loss_of, two_replicas());
    auto step = pipe.begin_step(1);
    step.backward({&batches[static_cast<std::size_t>(pipe.replica())], 1});
    expect_same_bits(gradients_of(pipe), gradients_of(parts), "replicas");
  });
}

TEST_F(PipelineReplicas, BeginWithTheSameValues) {
  run_ranks(4, [](comm::Group& group) {
    const auto parts = make_parts(2);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters_of(parts)) parameter.add_(group.rank());
    Pipeline pipe(group, stages_of(parts), loss_of, two_replicas());
    const auto expected = make_parts(2);
    for (auto& parameter : parameters_of(expected)) parameter.add_(group.rank() / 2 * 2);
    for (const auto& [name, tensor] : pipe.named_parameters()) {
      const auto stage = static_cast<std::size_t>(group.rank() / 2);
      const auto own = expected[stage]->named_parameters()[name.substr(name.find('.', 7) + 1)];
      EXPECT_TRUE(torch::equal(tensor, own)) << name;
    }
  });
}

TEST_F(PipelineReplicas, KnowTheirPlaces) {
  run_ranks(4, [](comm::Group& group) {
    EXPECT_EQ(own_stages(group, 8).size(), 2U);
    EXPECT_EQ(own_stages(group, 2, 2), std::vector{group.rank() / 2});
    auto options = two_replicas();
    options.schedule = Schedule::interleaved;
    const Pipeline pipe(group, stages_of(make_parts(4)), loss_of, options);
    EXPECT_EQ(pipe.replica(), group.rank() % 2);
    EXPECT_THAT(pipe.own_stages(), ElementsAre(group.rank() / 2, group.rank() / 2 + 2));
    EXPECT_EQ(pipe.has_first_stage(), group.rank() < 2);
    EXPECT_EQ(pipe.has_last_stage(), group.rank() >= 2);
  });
}

TEST_F(PipelineReplicas, MayLeaveParametersUnused) {
  run_ranks(4, [](comm::Group& group) {
    auto options = two_replicas();
    options.data_parallel.allow_unused = true;
    const auto parts = make_parts(2);
    auto stages = stages_of(parts);
    stages[0].forward = [&](const torch::Tensor& input) { return parts[0]->tokens(input); };
    Pipeline pipe(group, std::move(stages), loss_of, options);
    auto step = pipe.begin_step(2);
    step.backward(micro_batches_of(2, 2 * pipe.replica()));
    const auto gradients = gradients_of(pipe);
    EXPECT_EQ(gradients.contains("stages.0.tokens.weight"), group.rank() < 2);
    EXPECT_FALSE(gradients.contains("stages.0.expand.weight"));
  });
  const auto text = error_of([] {
    run_ranks(4, [](comm::Group& group) {
      const auto parts = make_parts(2);
      auto stages = stages_of(parts);
      stages[0].forward = [&](const torch::Tensor& input) { return parts[0]->tokens(input); };
      Pipeline pipe(group, std::move(stages), loss_of, two_replicas());
      auto step = pipe.begin_step(2);
      step.backward(micro_batches_of(2));
    });
  });
  EXPECT_THAT(text, HasSubstr("stages.0.norm.weight"));
}

// A model whose first and last part share a weight: in one process, they have the same tensor.
std::vector<TiedWeight> tie(int stages) {
  return {{{0, "tokens.weight"}, {stages - 1, "head.weight"}}};
}

void expect_tied(int ranks, int stages, const PipelineOptions& chosen) {
  run_ranks(ranks, [&](comm::Group& group) {
    auto options = chosen;
    options.tied = tie(stages);
    const auto alone = make_parts(stages);
    alone.back()->head->weight = alone.front()->tokens->weight;
    const auto copies = make_parts(stages);  // the same sums as the ranks
    {
      const torch::NoGradGuard no_grad;
      copies.back()->head->weight.copy_(copies.front()->tokens->weight);
    }
    Pipeline pipe(group, stages_of(make_parts(stages)), loss_of, options);
    torch::optim::SGD optimizer(pipe.parameters(), 0.1);
    const auto batches = micro_batches_of(4);
    for (int i = 0; i < 3; ++i) {
      accumulate(alone, batches);
      accumulate(copies, batches);
      auto step = pipe.begin_step(4);
      step.backward(batches);
      auto expected = gradients_of(copies);
      const auto head = fmt::format("stages.{}.head.weight", stages - 1);
      const auto sum = expected["stages.0.tokens.weight"] + expected[head];
      expected["stages.0.tokens.weight"] = expected[head] = sum;
      const auto gradients = gradients_of(pipe);
      if (options.replicas == 1) expect_same_bits(gradients, expected, "tied");
      const auto tied = alone.front()->tokens->weight.grad().cpu();
      EXPECT_TRUE(torch::allclose(sum, tied, 1e-4, 1e-6));
      for (const auto& name : {std::string("stages.0.tokens.weight"), head}) {
        if (!gradients.contains(name)) continue;
        EXPECT_TRUE(torch::allclose(gradients.at(name), tied, 1e-4, 1e-6)) << name;
      }
      step.apply(optimizer);
      const torch::NoGradGuard no_grad;
      for (const auto& parts : {alone, copies}) {
        if (parts == copies) {
          parts.front()->tokens->weight.mutable_grad() = ddp::test::on_test_device(sum);
          parts.back()->head->weight.mutable_grad() = ddp::test::on_test_device(sum.clone());
        }
        std::set<void*> updated;
        for (auto& parameter : parameters_of(parts)) {
          if (!updated.insert(parameter.unsafeGetTensorImpl()).second) continue;
          if (!parameter.grad().defined()) continue;
          parameter.add_(parameter.grad(), -0.1);
          parameter.mutable_grad().reset();
        }
      }
    }
  });
}

TEST_F(TiedWeightsOfStages, AreTrainedLikeOne) {
  PipelineOptions options;
  expect_tied(2, 2, options);
  expect_tied(3, 3, options);
  options.schedule = Schedule::interleaved;
  expect_tied(2, 4, options);
  expect_tied(1, 3, options);
}

// Of all parameters in one process. The module still has the weight that a tied one replaced,
// without a gradient.
double norm_of_all(const Parts& parts) {
  double sum = 0;
  for (const auto& parameter : parameters_of(parts)) {
    if (!parameter.grad().defined()) continue;
    sum += parameter.grad().cpu().to(torch::kFloat64).pow(2).sum().item<double>();
  }
  return std::sqrt(sum);
}

struct Clipped {
  double norm = 0;
  Gradients gradients;
};

Clipped clip_on(int ranks, const std::vector<TiedWeight>& tied, double max_norm) {
  Clipped all;
  std::mutex mutex;
  run_ranks(ranks, [&](comm::Group& group) {
    PipelineOptions options;
    options.schedule = Schedule::interleaved;
    options.tied = tied;
    Pipeline pipe(group, stages_of(make_parts(4)), loss_of, options);
    auto step = pipe.begin_step(4);
    step.backward(micro_batches_of(4));
    const double norm = pipe.clip_gradients(max_norm);
    const std::lock_guard lock(mutex);
    all.norm = norm;
    for (auto& [name, gradient] : gradients_of(pipe)) all.gradients[name] = gradient;
  });
  return all;
}

TEST_F(TiedWeightsOfStages, CountOnceInTheNorm) {
  for (const auto& tied : {std::vector<TiedWeight>(), tie(4)}) {
    const auto alone = make_parts(4);
    if (!tied.empty()) alone.back()->head->weight = alone.front()->tokens->weight;
    accumulate(alone, micro_batches_of(4));
    const double norm = norm_of_all(alone);
    const auto on_one = clip_on(1, tied, norm / 3);
    EXPECT_NEAR(on_one.norm, norm, 1e-6 * norm);
    for (const int ranks : {2, 4}) {
      const auto on_several = clip_on(ranks, tied, norm / 3);
      EXPECT_EQ(on_several.norm, on_one.norm);
      EXPECT_EQ(on_several.gradients.size(), on_one.gradients.size());
      expect_same_bits(on_several.gradients, on_one.gradients, "clipped");
    }
    const auto whole = clip_on(2, tied, norm * 2);
    for (const auto& [name, gradient] : on_one.gradients) {
      EXPECT_TRUE(torch::allclose(gradient * 3, whole.gradients.at(name), 1e-4, 1e-6)) << name;
    }
  }
}

TEST_F(TiedWeightsOfStages, OfReplicasStayEqual) {
  run_ranks(4, [](comm::Group& group) {
    auto options = two_replicas();
    options.tied = tie(2);
    Pipeline pipe(group, stages_of(make_parts(2)), loss_of, options);
    torch::optim::SGD optimizer(pipe.parameters(), 0.1);
    for (int i = 0; i < 3; ++i) {
      auto step = pipe.begin_step(2);
      step.backward(micro_batches_of(2, pipe.replica()));
      step.apply(optimizer);
    }
    torch::Tensor mine;
    for (const auto& [name, tensor] : pipe.named_parameters()) {
      if (name == "stages.0.tokens.weight" || name == "stages.1.head.weight") {
        mine = tensor.detach().cpu().clone();
      }
    }
    for (const auto& other : all_gather(group, mine)) EXPECT_TRUE(torch::equal(mine, other));
  });
}

TEST_F(TiedWeightsOfStages, ThatDoNotExistAreNamed) {
  const auto error = [](const TiedWeight& weight) {
    return error_of([&] {
      run_ranks(2, [&](comm::Group& group) {
        PipelineOptions options;
        options.tied = {weight};
        const Pipeline pipe(group, stages_of(make_parts(2)), loss_of, options);
      });
    });
  };
  EXPECT_THAT(error({{0, "tokens.weight"}, {1, "heads.weight"}}),
              HasSubstr("stage 1 has no parameter 'heads.weight'"));
  EXPECT_THAT(error({{0, "tokens.weight"}}), HasSubstr("has 1 parameter in one entry"));
  EXPECT_THAT(error({{1, "head.weight"}, {0, "tokens.weight"}}),
              HasSubstr("in the order of their stages, of which there are 2"));
  EXPECT_THAT(error({{0, "tokens.weight"}, {1, "expand.weight"}}), HasSubstr("'expand.weight'"));
}

}  // namespace
}  // namespace ddp::pipeline::test
