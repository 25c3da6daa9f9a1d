// SPDX-License-Identifier: Apache-2.0
// The schedule zb_h1, whose backward has two parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/buckets/split_backward.h"
#include "ddp_runtime/parallel/layers/activation_checkpoint.h"
#include "ddp_runtime/parallel/tensors/tensor_collectives.h"
#include "tests/unit/error_of.h"
#include "tests/unit/pipeline/staged_model.h"

namespace ddp::pipeline::test {
namespace {

using ddp::test::run_ranks;
using testing::HasSubstr;

// A part whose layers can be split.
Stage split_stage(const Part& part, bool recomputes = false) {
  const auto body = [part](const torch::Tensor& input) {
    auto x = part->is_first ? part->tokens(input) : input;
    const auto wide = torch::gelu(split_linear(*part->expand, part->norm(x)));
    x = x + split_linear(*part->contract, torch::dropout(wide, part->dropout, part->is_training()));
    return part->is_last ? split_linear(*part->head, x) : x;
  };
  if (!recomputes) return {part, body};
  return {part, [part, body](const torch::Tensor& input) {
            return checkpointed([body](const auto& in) { return body(in[0]); }, {input},
                                part->parameters());
          }};
}

std::vector<Stage> split_stages(const Parts& parts, bool recompute = false) {
  std::vector<Stage> stages;
  for (const auto& part : parts) stages.push_back(split_stage(part, recompute));
  return stages;
}

PipelineOptions zero_bubble() {
  PipelineOptions options;
  options.schedule = Schedule::zb_h1;
  return options;
}

class SplitPipelines : public PipelineTest {};

TEST_F(SplitPipelines, HaveTheGradientsOfAccumulation) {
  for (const bool recompute : {false, true}) {
    for (int p = 1; p <= 4; ++p) {
      for (int m = 1; m <= 8; ++m) {
        if (ddp::test::on_device() && m > 3) continue;  // the simulated one is slow
        run_ranks(p, [&](comm::Group& group) {
          const auto alone = make_parts(p);
          Pipeline pipe(group, split_stages(make_parts(p), recompute), loss_of, zero_bubble());
          torch::optim::SGD optimizer(pipe.parameters(), 0.1);
          torch::optim::SGD alone_optimizer(parameters_of(alone), 0.1);
          for (int i = 0; i < 2; ++i) {
            alone_optimizer.zero_grad();
            const auto losses = accumulate(alone, micro_batches_of(m, i));
            auto step = pipe.begin_step(m);
            const auto mine = step.backward(micro_batches_of(m, i));
            const auto what = fmt::format("p={} m={} recompute={}", p, m, recompute);
            EXPECT_EQ(gradients_of(pipe).size(), pipe.parameters().size()) << what;
            expect_same_bits(gradients_of(pipe), gradients_of(alone), what);
            if (pipe.has_last_stage()) expect_same_bits(mine, losses, what);
            step.apply(optimizer);
            alone_optimizer.step();
          }
        });
      }
    }
  }
}

// Without layers that can be split, the second part of backward has nothing to do.
TEST_F(SplitPipelines, TakeStagesThatCannotBeSplit) {
  run_ranks(3, [](comm::Group& group) {
    const auto alone = make_parts(3);
    accumulate(alone, micro_batches_of(4));
    Pipeline pipe(group, stages_of(make_parts(3)), loss_of, zero_bubble());
    auto step = pipe.begin_step(4);
    step.backward(micro_batches_of(4));
    expect_same_bits(gradients_of(pipe), gradients_of(alone), "not split");
  });
}

// The operations are those of the table, and the gradient of a weight is that of the second part.
TEST_F(SplitPipelines, ComputeWeightGradientsInTheirTurn) {
  // On a device, backward has a thread of its own, where a layer that runs again is not split.
  const bool recompute = !ddp::test::on_device();
  run_ranks(2, [recompute](comm::Group& group) {
    const auto parts = make_parts(2);
    auto options = zero_bubble();
    options.record_operations = true;
    Pipeline pipe(group, split_stages(parts, recompute), loss_of, options);
    const auto& part = parts[static_cast<std::size_t>(group.rank())];
    std::vector<std::string> phases;
    part->expand->weight.register_hook([&](const torch::Tensor& gradient) {
      if (gradient.defined()) phases.push_back(group.flight_recorder().snapshot().phase);
    });
    auto step = pipe.begin_step(4);
    step.backward(micro_batches_of(4));
    ASSERT_EQ(phases.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(phases[i], fmt::format("step 1: weight gradient of stage {} of 2 on micro-batch {}",
                                       group.rank(), i));
    }
    std::vector<Operation> ran;
    for (const auto& one : pipe.times().operations) ran.push_back(one.operation);
    EXPECT_EQ(ran, operations(Schedule::zb_h1, {2, 4}, group.rank()));
  });
}

TEST_F(SplitPipelines, AverageOverReplicas) {
  for (const bool recompute : {false, true}) {
    run_ranks(4, [&](comm::Group& group) {
      PipelineOptions plain;
      plain.replicas = 2;
      plain.data_parallel.buckets = {40, 300};
      auto split = plain;
      split.schedule = Schedule::zb_h1;
      Pipeline expected(group, stages_of(make_parts(2)), loss_of, plain);
      Pipeline pipe(group, split_stages(make_parts(2), recompute), loss_of, split);
      for (int i = 0; i < 3; ++i) {
        const auto batches = micro_batches_of(3, 3 * pipe.replica() + i);
        auto expected_step = expected.begin_step(3);
        expected_step.backward(batches);
        auto step = pipe.begin_step(3);
        step.backward(batches);
        EXPECT_EQ(gradients_of(pipe).size(), pipe.parameters().size());
        expect_same_bits(gradients_of(pipe), gradients_of(expected), "replicas");
        EXPECT_EQ(pipe.clip_gradients(0.01), expected.clip_gradients(0.01));
        expect_same_bits(gradients_of(pipe), gradients_of(expected), "clipped");
      }
    });
  }
}

TEST_F(SplitPipelines, NameParametersWithoutGradients) {
  const auto train = [](bool allow_unused) {
    run_ranks(4, [allow_unused](comm::Group& group) {
      const auto parts = make_parts(2);
      auto stages = split_stages(parts);
      stages[0].forward = [&](const torch::Tensor& input) { return parts[0]->tokens(input); };
      auto options = zero_bubble();
      options.replicas = 2;
      options.data_parallel.allow_unused = allow_unused;
      Pipeline pipe(group, std::move(stages), loss_of, options);
      auto step = pipe.begin_step(2);
      step.backward(micro_batches_of(2));
      EXPECT_FALSE(gradients_of(pipe).contains("stages.0.expand.weight"));
      EXPECT_EQ(gradients_of(pipe).contains("stages.1.expand.weight"), group.rank() >= 2);
    });
  };
  train(true);
  EXPECT_THAT(error_of([&] { train(false); }),
              HasSubstr("parameter 'stages.0.norm.weight' got no gradient in this step"));
}

TEST_F(SplitPipelines, TieWeights) {
  run_ranks(2, [](comm::Group& group) {
    PipelineOptions plain;
    plain.tied = {{{0, "tokens.weight"}, {1, "head.weight"}}};
    auto split = plain;
    split.schedule = Schedule::zb_h1;
    Pipeline expected(group, stages_of(make_parts(2)), loss_of, plain);
    Pipeline pipe(group, split_stages(make_parts(2)), loss_of, split);
    auto expected_step = expected.begin_step(4);
    expected_step.backward(micro_batches_of(4));
    auto step = pipe.begin_step(4);
    step.backward(micro_batches_of(4));
    expect_same_bits(gradients_of(pipe), gradients_of(expected), "tied");
  });
}

// Threads share the generator, so only one rank can have dropout here.
TEST_F(SplitPipelines, RepeatDropoutWhenTheyRecompute) {
  run_ranks(1, [](comm::Group& group) {
    std::vector<Gradients> gradients;
    for (const auto schedule : {Schedule::one_f_one_b, Schedule::zb_h1}) {
      for (const bool recompute : {false, true}) {
        PipelineOptions options;
        options.schedule = schedule;
        options.seed = 3;
        const auto parts = make_parts(1);
        parts[0]->dropout = 0.5;
        Pipeline pipe(group, split_stages(parts, recompute), loss_of, options);
        auto step = pipe.begin_step(3);
        step.backward(micro_batches_of(3));
        gradients.push_back(gradients_of(pipe));
        expect_same_bits(gradients.back(), gradients.front(), "dropout");
      }
    }
  });
}

TEST_F(SplitPipelines, EvaluateBetweenSteps) {
  run_ranks(2, [](comm::Group& group) {
    const auto alone = make_parts(2);
    Pipeline pipe(group, split_stages(make_parts(2)), loss_of, zero_bubble());
    const auto batches = micro_batches_of(3);
    for (int i = 0; i < 2; ++i) {
      const auto outputs = pipe.evaluate(batches);
      for (std::size_t k = 0; k < outputs.size(); ++k) {
        EXPECT_TRUE(torch::equal(outputs[k], through(alone, batches[k].input)));
      }
      auto step = pipe.begin_step(3);
      step.backward(batches);
    }
  });
}

TEST_F(SplitPipelines, NameThePartOfBackwardThatFails) {
  const auto text = error_of([] {
    run_ranks(2, [](comm::Group& group) {
      const auto parts = make_parts(2);
      parts[1]->expand->weight.register_hook([](const torch::Tensor&) -> torch::Tensor {
        throw std::runtime_error("the coffee is cold");
      });
      Pipeline pipe(group, split_stages(parts), loss_of, zero_bubble());
      auto step = pipe.begin_step(3);
      step.backward(micro_batches_of(3));
    });
  });
  EXPECT_THAT(text, HasSubstr("weight gradient of stage 1 of 2 on micro-batch 0: the coffee"));
}

}  // namespace
}  // namespace ddp::pipeline::test
