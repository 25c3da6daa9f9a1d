// SPDX-License-Identifier: Apache-2.0
// Pipelines train like one process: the same bits with every schedule, number of ranks and of
// micro-batches.
#include "ddp_runtime/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_runtime/pipeline/generator_seed.h"
#include "tests/unit/pipeline/staged_model.h"

namespace ddp::pipeline::test {
namespace {

using ddp::test::run_ranks;

constexpr double kRate = 0.1;

// Of each step of one process.
struct Expected {
  std::vector<Gradients> gradients;
  std::vector<std::vector<torch::Tensor>> losses;
};

// The micro-batches of each step.
using Steps = std::vector<std::vector<MicroBatch>>;

Expected train_alone(int stages, const Steps& steps) {
  Expected expected;
  const auto parts = make_parts(stages);
  torch::optim::SGD optimizer(parameters_of(parts), kRate);
  for (const auto& batches : steps) {
    optimizer.zero_grad();
    expected.losses.push_back(accumulate(parts, batches));
    expected.gradients.push_back(gradients_of(parts));
    optimizer.step();
  }
  return expected;
}

// The data is made on each rank's device.
using MakeSteps = std::function<Steps()>;

// With the weights of the micro-batches.
double mean_of(const std::vector<torch::Tensor>& losses, const std::vector<MicroBatch>& batches) {
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    sum += losses[i].item<double>() * batches[i].weight;
  }
  return sum / static_cast<double>(losses.size());
}

void expect_like_alone(int ranks, int stages, const PipelineOptions& options,
                       const MakeSteps& make_steps, const std::string& what) {
  run_ranks(ranks, [&](comm::Group& group) {
    const auto steps = make_steps();
    const auto expected = train_alone(stages, steps);
    Pipeline pipe(group, stages_of(make_parts(stages)), loss_of, options);
    torch::optim::SGD optimizer(pipe.parameters(), kRate);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      auto step = pipe.begin_step(static_cast<int>(steps[i].size()), static_cast<std::int64_t>(i));
      const auto losses = step.backward(steps[i]);
      const auto gradients = gradients_of(pipe);
      EXPECT_EQ(gradients.size(), pipe.parameters().size()) << what;
      expect_same_bits(gradients, expected.gradients[i], what);
      if (pipe.has_last_stage()) expect_same_bits(losses, expected.losses[i], what);
      EXPECT_EQ(losses.empty(), !pipe.has_last_stage());
      EXPECT_NEAR(step.mean_loss(), mean_of(expected.losses[i], steps[i]), 1e-9) << what;
      step.apply(optimizer);
    }
  });
}

Steps equal_steps(int micro_batches) {
  return {micro_batches_of(micro_batches), micro_batches_of(micro_batches, micro_batches)};
}

class Pipelines : public PipelineTest {};

TEST_F(Pipelines, HaveTheGradientsOfAccumulation) {
  for (const auto schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved}) {
    const int most = schedule == Schedule::interleaved ? 2 : 1;
    for (int p = 1; p <= 4; ++p) {
      for (int v = 1; v <= most; ++v) {
        for (int m = 1; m <= 8; ++m) {
          if (schedule == Schedule::interleaved && m % p != 0) continue;
          if (ddp::test::on_device() && m > 4) continue;  // the simulated one is slow
          PipelineOptions options;
          options.schedule = schedule;
          expect_like_alone(
              p, p * v, options, [m] { return equal_steps(m); },
              fmt::format("{} p={} m={} v={}", to_string(schedule), p, m, v));
        }
      }
    }
  }
}

// Dimensions and sizes change within a step and from step to step; weights make the mean over
// samples of it.
Steps uneven_steps() {
  Steps steps;
  const std::vector<std::vector<std::vector<std::int64_t>>> shapes = {
      {{5}, {5}, {2, 4}, {1}}, {{9}, {3, 1, 2}, {9}, {2}}, {{5}, {5}, {5}, {3}}};
  for (const auto& of_step : shapes) {
    std::vector<MicroBatch> batches;
    std::int64_t all = 0;
    for (const auto& shape : of_step) {
      batches.push_back(micro_batch_of(static_cast<int>(batches.size()), shape));
      all += batches.back().target.numel();
    }
    for (auto& batch : batches) {
      batch.weight = static_cast<double>(batch.target.numel() * 4) / static_cast<double>(all);
    }
    steps.push_back(std::move(batches));
  }
  return steps;
}

TEST_F(Pipelines, TakeMicroBatchesOfDifferentShapes) {
  for (const auto schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    PipelineOptions options;
    options.schedule = schedule;
    expect_like_alone(4, 4, options, uneven_steps, std::string(to_string(schedule)));
  }
  PipelineOptions options;
  options.schedule = Schedule::interleaved;
  expect_like_alone(4, 8, options, uneven_steps, "interleaved");
}

// The recorder has the last 32 operations, here 20 messages. Only the first activation of all does
// not fit behind its header.
TEST_F(Pipelines, SendActivationsTogetherWithTheirHeaders) {
  if (ddp::test::on_device()) GTEST_SKIP() << "activations of a device travel alone";
  run_ranks(2, [](comm::Group& group) {
    Pipeline pipe(group, stages_of(make_parts(2)), loss_of);
    for (const int alone : {1, 1}) {
      auto step = pipe.begin_step(4);
      step.backward(micro_batches_of(4));
      int headers = 0;
      int activations = 0;
      for (const auto& one : group.flight_recorder().snapshot().recent) {
        headers += one.what.find("(header of") != std::string::npos ? 1 : 0;
        activations += one.what.find("(activation of") != std::string::npos ? 1 : 0;
      }
      EXPECT_GE(headers, 4);
      EXPECT_EQ(activations, alone);
    }
  });
}

// Of more than 1 MiB, which are not copied.
TEST_F(Pipelines, TakeLongActivationsBetweenShortOnes) {
  if (ddp::test::on_device()) GTEST_SKIP() << "the simulated one is slow";
  const auto steps = [] {
    std::vector<MicroBatch> batches;
    for (const std::int64_t size : {44000, 44000, 5, 44000}) {
      batches.push_back(micro_batch_of(static_cast<int>(batches.size()), {size}));
    }
    return Steps{batches};
  };
  expect_like_alone(2, 2, {}, steps, "long");
}

TEST_F(Pipelines, SendLongMessagesInSegments) {
  run_ranks(3,
            [](comm::Group& group) {
              const auto batches = micro_batches_of(4);
              const auto parts = make_parts(3);
              accumulate(parts, batches);
              Pipeline pipe(group, stages_of(make_parts(3)), loss_of);
              auto step = pipe.begin_step(4);
              step.backward(batches);
              expect_same_bits(gradients_of(pipe), gradients_of(parts), "segments");
            },
            {.limits = {.segment_bytes = 8, .window = 2}});
}

TEST_F(Pipelines, NeedDataOnlyWhereItIsUsed) {
  run_ranks(3, [](comm::Group& group) {
    auto batches = micro_batches_of(4);
    const auto parts = make_parts(3);
    const auto losses = accumulate(parts, batches);
    for (auto& batch : batches) {
      if (group.rank() != 0) batch.input = torch::Tensor();
      if (group.rank() != 2) batch.target = torch::Tensor();
    }
    if (group.rank() == 1) batches.clear();
    auto stages = stages_of(make_parts(3));
    for (int i = 0; i < 3; ++i) {
      if (i != group.rank()) stages[static_cast<std::size_t>(i)] = {};
    }
    Pipeline pipe(group, std::move(stages), group.rank() == 2 ? loss_of : Loss());
    auto step = pipe.begin_step(4);
    step.backward(batches);
    expect_same_bits(gradients_of(pipe), gradients_of(parts), "data");
    double mean = 0;
    for (const auto& loss : losses) mean += loss.item<double>() / 4;
    EXPECT_DOUBLE_EQ(step.mean_loss(), mean);
  });
}

TEST_F(Pipelines, EvaluateBetweenSteps) {
  for (const int v : {1, 2}) {
    run_ranks(3, [v](comm::Group& group) {
      PipelineOptions options;
      options.schedule = Schedule::interleaved;
      const int stages = 3 * v;
      const auto alone = make_parts(stages);
      Pipeline pipe(group, stages_of(make_parts(stages)), loss_of, options);
      for (const int count : {1, 5, 3}) {
        const auto batches = micro_batches_of(count, 20);
        const auto outputs = pipe.evaluate(batches);
        EXPECT_EQ(outputs.size(), pipe.has_last_stage() ? batches.size() : 0U);
        for (std::size_t i = 0; i < outputs.size(); ++i) {
          EXPECT_FALSE(outputs[i].requires_grad());
          EXPECT_TRUE(torch::equal(outputs[i], through(alone, batches[i].input)));
        }
        for (const auto& part : alone) part->zero_grad();
        accumulate(alone, micro_batches_of(3));
        auto step = pipe.begin_step(3);
        step.backward(micro_batches_of(3));
        expect_same_bits(gradients_of(pipe), gradients_of(alone), "after an evaluation");
      }
    });
  }
}

// Part `frozen` does not train.
void freeze(const Parts& parts, std::size_t frozen) {
  for (auto& parameter : parts[frozen]->parameters()) parameter.requires_grad_(false);
}

TEST_F(Pipelines, SendNoGradientsToAStageThatDoesNotTrain) {
  for (const std::size_t frozen : {0U, 1U, 2U}) {
    run_ranks(3, [frozen](comm::Group& group) {
      const auto alone = make_parts(3);
      const auto parts = make_parts(3);
      freeze(alone, frozen);
      freeze(parts, frozen);
      accumulate(alone, micro_batches_of(4));
      Pipeline pipe(group, stages_of(parts), loss_of);
      auto step = pipe.begin_step(4);
      step.backward(micro_batches_of(4));
      expect_same_bits(gradients_of(pipe), gradients_of(alone), "frozen");
      EXPECT_EQ(gradients_of(pipe).empty(), group.rank() == static_cast<int>(frozen));
    });
  }
}

TEST_F(Pipelines, TakeStagesThatIgnoreTheirInput) {
  run_ranks(2, [](comm::Group& group) {
    const auto first = std::make_shared<PartImpl>(true, false);
    ddp::test::move_to_test_device(*first);
    const auto weight = ddp::test::on_test_device(torch::ones({5, kTokens})).requires_grad_();
    std::vector<Stage> stages = {make_stage(first),
                                 {nullptr, [&](const torch::Tensor&) { return weight * 2; }}};
    PipelineOptions options;
    options.device = ddp::test::test_device();
    Pipeline pipe(group, std::move(stages), loss_of, options);
    auto step = pipe.begin_step(2);
    step.backward(micro_batches_of(2));
    for (const auto& [name, gradient] : gradients_of(pipe)) {
      EXPECT_EQ(gradient.abs().sum().item<double>(), 0) << name;
    }
  });
}

TEST_F(Pipelines, FreeOutputsThatWereSent) {
  if (ddp::test::on_device()) GTEST_SKIP() << "memory of a device is freed later";
  run_ranks(2, [](comm::Group& group) {
    using Storage = c10::weak_intrusive_ptr<c10::StorageImpl>;
    std::vector<Storage> outputs;
    const auto part = make_parts(2);
    const auto freed = [&] {
      return std::all_of(outputs.begin(), outputs.end(),
                         [](const Storage& s) { return s.expired(); });
    };
    const Stage first{part[0], [&](const torch::Tensor& x) {
                        const auto y = part[0]->forward(x);
                        // The addition at the end does not save its result.
                        outputs.emplace_back(y.storage().getWeakStorageImpl());
                        return y;
                      }};
    bool seen = false;
    const auto& weight = part[0]->contract->weight;
    weight.register_hook([&](const torch::Tensor&) {
      // The first backward begins after all forwards. A send ends a moment after its receive.
      for (int i = 0; i < 5000 && !freed(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_TRUE(freed());
      seen = true;
    });
    PipelineOptions options;
    options.schedule = Schedule::gpipe;
    Pipeline pipe(group, {first, make_stage(part[1])}, loss_of, options);
    auto step = pipe.begin_step(4);
    step.backward(micro_batches_of(4));
    EXPECT_EQ(seen, group.rank() == 0);
    EXPECT_EQ(outputs.size(), group.rank() == 0 ? 4U : 0U);
  });
}

TEST_F(Pipelines, RecordWhenTheirOperationsRan) {
  for (const bool records : {false, true}) {
    run_ranks(2, [records](comm::Group& group) {
      PipelineOptions options;
      options.record_operations = records;
      Pipeline pipe(group, stages_of(make_parts(2)), loss_of, options);
      auto step = pipe.begin_step(4);
      step.backward(micro_batches_of(4));
      const auto& times = pipe.times();
      if (!records) {
        EXPECT_TRUE(times.operations.empty());
        return;
      }
      std::vector<Operation> ran;
      double computing = 0;
      double end = 0;
      for (const auto& one : times.operations) {
        ran.push_back(one.operation);
        EXPECT_LE(end, one.begin);
        EXPECT_LE(one.begin + one.waited, one.end);
        computing += one.computing();
        end = one.end;
      }
      EXPECT_EQ(ran, operations(Schedule::one_f_one_b, {2, 4}, group.rank()));
      EXPECT_LE(end, times.seconds);
      EXPECT_LE(computing, times.computing);
      pipe.evaluate(micro_batches_of(3));
      EXPECT_EQ(pipe.times().operations.size(), 3U);
    });
  }
}

// Threads share the generator, so only one rank can have dropout here; tests/ranks has several.
TEST_F(Pipelines, HaveRandomNumbersThatDependOnTheStage) {
  run_ranks(1, [](comm::Group& group) {
    PipelineOptions options;
    options.schedule = Schedule::interleaved;
    options.seed = 3;
    const auto parts = make_parts(3);
    const auto alone = make_parts(3);
    for (const auto& part : {parts, alone}) {
      for (const auto& each : part) each->dropout = 0.5;
    }
    const auto batches = micro_batches_of(2);
    for (int i = 0; i < 2; ++i) {
      auto x = batches[static_cast<std::size_t>(i)].input;
      for (int stage = 0; stage < 3; ++stage) {
        torch::manual_seed(forward_seed(3, 1, stage, i));
        x = alone[static_cast<std::size_t>(stage)]->forward(x);
      }
      const auto loss = loss_of(x, batches[static_cast<std::size_t>(i)].target);
      loss.backward(torch::full_like(loss, 0.5));
    }
    torch::manual_seed(99);
    const auto next = torch::rand({3});
    torch::manual_seed(99);
    Pipeline pipe(group, stages_of(parts), loss_of, options);
    auto step = pipe.begin_step(2);
    step.backward(batches);
    expect_same_bits(gradients_of(pipe), gradients_of(alone), "dropout");
    EXPECT_TRUE(torch::equal(torch::rand({3}), next)) << "the program's own numbers continue";
  });
}

TEST_F(Pipelines, GiveEachForwardItsOwnSeed) {
  std::set<std::uint64_t> seeds;
  for (int step = 0; step < 4; ++step) {
    for (int stage = 0; stage < 4; ++stage) {
      for (int i = 0; i < 4; ++i) seeds.insert(forward_seed(1, step, stage, i));
    }
  }
  EXPECT_EQ(seeds.size(), 64U);
}

}  // namespace
}  // namespace ddp::pipeline::test
