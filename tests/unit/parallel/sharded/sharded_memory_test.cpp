// SPDX-License-Identifier: Apache-2.0
// In which order units are gathered and reduced, how often, and how much memory that takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/sharded/plan/shard_costs.h"
#include "tests/unit/parallel/counting_allocator.h"
#include "tests/unit/parallel/sharded/parts.h"
#include "tests/unit/parallel/sharded/recording_group.h"
#include "tests/unit/parallel/sharded/strategies.h"

namespace ddp::test {
namespace {

using testing::ElementsAre;

constexpr int kRecordedParts = 3;
const std::vector<std::string> kParts = {"parts.*"};

// Notes when it computes.
struct NotedImpl : torch::nn::Module {
  NotedImpl(CallLog& of_rank, std::string name_of_part)
      : log(of_rank), part(std::move(name_of_part)) {
    register_module("inner", inner);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    log.add("begin " + part);
    auto y = inner(x);
    if (y.requires_grad()) {
      y.register_hook([this](const torch::Tensor&) { log.add("back " + part); });
    }
    log.add("end " + part);
    return y;
  }
  torch::nn::Linear inner{kInputs, kInputs};
  CallLog& log;
  std::string part;
};

Parts recorded_parts(CallLog& log) {
  return seeded([&] {
    std::vector<std::shared_ptr<torch::nn::Module>> parts;
    for (int i = 0; i < kRecordedParts; ++i) {
      parts.push_back(std::make_shared<NotedImpl>(log, std::to_string(i)));
    }
    return Parts(PartsImpl(parts, [](PartsImpl& net, torch::Tensor x) {
      for (std::size_t i = 0; i < kRecordedParts; ++i) x = unit(net.part<NotedImpl>(i))(x).tanh();
      return x;
    }));
  });
}

torch::Tensor parts_numbers(int batch) {
  return torch::sin(torch::arange(4 * kInputs, torch::kFloat32) + batch).view({4, kInputs});
}

// "gather 1", for example, and what the parts noted.
std::vector<std::string> short_names(const std::vector<std::string>& calls) {
  std::vector<std::string> names;
  for (const auto& call : calls) {
    for (const char* const what : {"gather ", "scatter "}) {
      const auto dot = call.find(" of parts.");
      if (call.starts_with(what) && dot != std::string::npos) {
        names.push_back(what + call.substr(dot + 10, 1));
      }
    }
    if (call.starts_with("begin") || call.starts_with("end") || call.starts_with("back")) {
      names.push_back(call);
    }
  }
  return names;
}

using OnRecorded = std::function<void(Parts&, Training&, CallLog&, comm::Group&)>;

void with_recorded_parts(int ranks, const Strategy& strategy, const OnRecorded& body) {
  test::run_ranks(ranks, [&](comm::Group& group) {
    CallLog log;
    RecordingGroup recording(group, log);
    auto net = recorded_parts(log);
    auto training = begin_training(*net, recording, strategy);
    body(net, training, log, group);
  });
}

// The calls of the second step.
std::vector<std::string> calls_of_a_step(const Strategy& strategy, int micro_batches = 1) {
  std::vector<std::string> calls;
  with_recorded_parts(2, strategy,
                      [&](Parts& net, Training& training, CallLog& log, comm::Group& group) {
                        for (int i = 0; i < 2; ++i) {
                          log.take();
                          auto step = training.replica->begin_step(micro_batches);
                          for (int micro = 0; micro < micro_batches; ++micro) {
                            step.backward(net->forward(parts_numbers(micro)).square().mean());
                          }
                          step.apply(*training.optimizer);
                        }
                        const auto mine = short_names(log.take());
                        if (group.rank() == 0) calls = mine;
                      });
  return calls;
}

// The next unit is gathered while one computes, and in backward before its gradients are reduced.
TEST(OrderOfGathers, IsAheadOfTheUnitThatComputes) {
  if (on_device()) GTEST_SKIP() << "its collectives are others";
  EXPECT_THAT(calls_of_a_step(strategy_called("parameters", kParts)),
              ElementsAre("gather 0", "gather 1", "begin 0", "end 0", "gather 2", "begin 1",
                          "end 1", "begin 2", "end 2", "back 2", "gather 1", "scatter 2", "back 1",
                          "gather 0", "scatter 1", "back 0", "scatter 0"));
}

TEST(OrderOfGathers, HasEachUnitOnceIfItIsKept) {
  if (on_device()) GTEST_SKIP() << "its collectives are others";
  EXPECT_THAT(calls_of_a_step(strategy_called("keep", kParts)),
              ElementsAre("gather 0", "gather 1", "begin 0", "end 0", "gather 2", "begin 1",
                          "end 1", "begin 2", "end 2", "back 2", "scatter 2", "back 1", "scatter 1",
                          "back 0", "scatter 0"));
}

// A program may catch the error and begin another step.
TEST(OrderOfGathers, IsTheSameAfterAnErrorInForward) {
  if (on_device()) GTEST_SKIP() << "its collectives are others";
  with_recorded_parts(2, strategy_called("parameters", kParts),
                      [](Parts& net, Training& training, CallLog& log, comm::Group&) {
                        std::vector<std::vector<std::string>> of_steps;
                        for (int i = 0; i < 3; ++i) {
                          log.take();
                          auto step = training.replica->begin_step();
                          step.backward(net->forward(parts_numbers(i)).square().mean());
                          step.apply(*training.optimizer);
                          of_steps.push_back(short_names(log.take()));
                          training.replica->begin_step();
                          const auto second = unit(net->part<NotedImpl>(1));
                          EXPECT_NE(error_of([&] { second(torch::ones({2, 3})); }), "");
                        }
                        EXPECT_EQ(of_steps[1], of_steps[0]);
                        EXPECT_EQ(of_steps[2], of_steps[0]);
                      });
}

// A unit that recomputes its activations in backward is whole then anyway.
TEST(OrderOfGathers, HasNoMoreOfAUnitThatRecomputes) {
  if (on_device()) GTEST_SKIP() << "its collectives are others";
  test::run_ranks(2, [](comm::Group& group) {
    CallLog log;
    RecordingGroup recording(group, log);
    auto net = seeded(recomputed_inside);
    auto training = begin_training(*net, recording, strategy_called("parameters", kParts));
    for (int i = 0; i < 3; ++i) {
      log.take();
      auto step = training.replica->begin_step();
      step.backward(net->forward(parts_numbers(i)).square().mean());
      const auto calls = short_names(log.take());
      EXPECT_EQ(std::ranges::count(calls, "gather 0"), 2);
      EXPECT_EQ(std::ranges::count(calls, "gather 1"), 2);
      EXPECT_EQ(std::ranges::count(calls, "gather 2"), 1);  // the last one
      step.apply(*training.optimizer);
    }
  });
}

// Pairs add up the micro-batches of a step before they exchange the sum.
TEST(OrderOfReductions, ReachesOtherNodesOncePerStep) {
  if (on_device()) GTEST_SKIP() << "its collectives are others";
  for (const int micro_batches : {1, 3}) {
    with_recorded_parts(
        4, strategy_called("hybrid in pairs", kParts),
        [&](Parts& net, Training& training, CallLog& log, comm::Group&) {
          for (int i = 0; i < 2; ++i) {
            log.take();
            auto step = training.replica->begin_step(micro_batches);
            for (int micro = 0; micro < micro_batches; ++micro) {
              step.backward(net->forward(parts_numbers(micro)).square().mean());
            }
            const auto calls = log.take();
            const auto begins = [&](const char* what) {
              return std::ranges::count_if(calls,
                                           [&](const auto& c) { return c.starts_with(what); });
            };
            const auto across = std::ranges::count_if(calls, [](const std::string& call) {
              return call.starts_with("all-reduce") && call.ends_with("of other nodes");
            });
            EXPECT_GT(across, 0);
            EXPECT_EQ(begins("scatter "), micro_batches * across);
            step.apply(*training.optimizer);
          }
        });
  }
}

// --- Memory

class ShardedMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (on_device()) GTEST_SKIP() << "counts what CPUs allocate";
  }
};

// One computes, one is gathered ahead, and one is not yet given back.
TEST_F(ShardedMemory, OfWholeUnitsIsThatOfThreeAtMost) {
  constexpr int kUnits = 8;
  constexpr std::size_t kBytes = sizeof(float) * (kInputs * kInputs + kInputs);
  for (const bool recompute : {false, true}) {
    const CountingAllocator allocator;
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = seeded([&] {
        std::vector<std::shared_ptr<torch::nn::Module>> parts;
        for (int i = 0; i < kUnits; ++i) parts.push_back(linear(kInputs, kInputs));
        return Parts(PartsImpl(parts, [=](PartsImpl& all, torch::Tensor x) {
          for (std::size_t i = 0; i < kUnits; ++i) {
            const auto call = [&all, i](const std::vector<torch::Tensor>& in) {
              return all.call_linear(i, in[0]).tanh();
            };
            x = recompute ? checkpointed(call, {x}, all.parts[i]->parameters()) : call({x});
          }
          return x;
        }));
      });
      auto training = begin_training(*net, group, strategy_called("parameters", kParts));
      for (int i = 0; i < 4; ++i) {
        auto step = training.replica->begin_step();
        step.backward(net->forward(parts_numbers(i)).square().mean());
        step.apply(*training.optimizer);
        const torch::NoGradGuard no_grad;
        ForwardPasses passes(*net);
        passes.begin();
        net->forward(parts_numbers(i));
        passes.end();
      }
    });
    EXPECT_GE(allocator.most_of(kBytes), 2);
    EXPECT_LE(allocator.most_of(kBytes), 2 * 3) << recompute;
  }
}

TEST_F(ShardedMemory, DoesNotGrowInFiftySteps) {
  for (const auto& strategy : all_strategies({"parts.*"})) {
    SCOPED_TRACE(strategy.name);
    const CountingAllocator allocator;
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = seeded(recomputed_inside);
      auto training = begin_training(*net, group, strategy);
      const auto make_steps = [&](int count) {
        for (int i = 0; i < count; ++i) {
          auto step = training.replica->begin_step(2);
          for (int micro = 0; micro < 2; ++micro) {
            step.backward(net->forward(parts_numbers(micro)).square().mean());
          }
          step.apply(*training.optimizer);
          const torch::NoGradGuard no_grad;
          ForwardPasses passes(*net);
          passes.begin();
          net->forward(parts_numbers(i));
          passes.end();
          whole_values(*net, training);
        }
        group.barrier().wait();
      };
      make_steps(5);
      const auto before = allocator.live_bytes();
      group.barrier().wait();
      make_steps(50);
      // The communication thread may not have released its last buffers yet.
      for (int i = 0; i < 1000 && allocator.live_bytes() > before; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_LE(allocator.live_bytes(), before);
      group.barrier().wait();
    });
  }
}

// Without activations, a rank has what predict_costs() says, between steps and at the peak.
class ShardedFormula : public ShardedMemory {
 protected:
  static constexpr int kRanks = 2;
  static constexpr int kUnits = 8;
  static constexpr std::int64_t kRow = 128;
  static constexpr std::int64_t kUnitBytes = sizeof(float) * (kRow * kRow + kRow);
  static constexpr std::int64_t kOthers = 16 << 10;  // activations and small tensors

  static Parts make() {
    return seeded([] {
      std::vector<std::shared_ptr<torch::nn::Module>> parts;
      for (int i = 0; i < kUnits; ++i) parts.push_back(linear(kRow, kRow));
      return Parts(PartsImpl(parts, [](PartsImpl& all, torch::Tensor x) {
        for (std::size_t i = 0; i < kUnits; ++i) x = all.call_linear(i, x);
        return x;
      }));
    });
  }
  struct Measured {
    std::int64_t between_steps = 0;
    std::int64_t peak = 0;
  };
  static Measured measure(const Strategy& strategy) {
    CountingAllocator allocator;
    Measured measured;
    test::run_ranks(kRanks, [&](comm::Group& group) {
      CallLog log;
      RecordingGroup recording(group, log);
      auto net = make();
      auto training = begin_training(*net, recording, strategy, adam_of);
      for (int i = 0; i < 4; ++i) {
        group.barrier().wait();
        if (i == 2 && group.rank() == 0) allocator.forget_peak();
        group.barrier().wait();
        auto step = training.replica->begin_step();
        step.backward(net->forward(torch::ones({1, kRow})).square().mean());
        step.apply(*training.optimizer);
      }
      training.replica->begin_step();  // discards gradients
      group.barrier().wait();
      const auto of_group = static_cast<std::int64_t>(log.bytes());
      const auto of_rank = [](std::size_t bytes) {
        return static_cast<std::int64_t>(bytes / kRanks);
      };
      if (group.rank() == 0) {
        measured = {of_group + of_rank(allocator.live_bytes()),
                    of_group + of_rank(allocator.peak_bytes())};
      }
      group.barrier().wait();
    });
    return measured;
  }
  static std::unique_ptr<torch::optim::Optimizer> adam_of(std::vector<torch::Tensor> parameters) {
    return std::make_unique<optim::Adam>(std::move(parameters));
  }
  static ShardCosts predict(ShardStrategy strategy) {
    return predict_costs(strategy,
                         {.trained = kUnits * kUnitBytes,
                          .state = 2 * kUnits * kUnitBytes,
                          .fresh_gradients = kUnitBytes,
                          .largest_bucket = kUnitBytes,
                          .units = {.count = kUnits,
                                    .largest = kUnitBytes,
                                    .last = kUnitBytes,
                                    .largest_of_gradients = kUnitBytes}},
                         {.ranks = kRanks});
  }
};

TEST_F(ShardedFormula, HoldsForEachStrategy) {
  for (const auto& [name, predicted] : {std::pair{"optimizer", ShardStrategy::optimizer},
                                        {"gradients", ShardStrategy::gradients},
                                        {"parameters", ShardStrategy::parameters},
                                        {"keep", ShardStrategy::parameters_kept},
                                        {"hybrid", ShardStrategy::hybrid}}) {
    const auto all = all_strategies({"parts.*"}, {kUnitBytes, kUnitBytes});
    const auto measured = measure(*std::ranges::find(all, name, &Strategy::name));
    const auto costs = predict(predicted);
    EXPECT_LE(measured.between_steps, costs.bytes_between_steps + kOthers) << name;
    EXPECT_LE(measured.peak, costs.bytes_between_steps + costs.bytes_in_step + kOthers) << name;
    EXPECT_GE(measured.between_steps, costs.bytes_between_steps - kOthers) << name;
  }
}

}  // namespace
}  // namespace ddp::test
