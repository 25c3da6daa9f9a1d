// SPDX-License-Identifier: Apache-2.0
// The trainer with parts of the program's own: optimizer, schedule, loss, weights of batches,
// metrics, callbacks, log, and data sets of torch::data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/data/sampler.h"
#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/data/torch_dataset.h"
#include "ddp_runtime/train/model/weight_average.h"
#include "ddp_runtime/train/options/global_batch.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kIgnored = -100;

// Positions with four values and one of three classes, two to a sample.
struct Tokens {
  torch::Tensor inputs;
  torch::Tensor targets;
};

Tokens tokens(std::int64_t samples) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  return {torch::randn({samples, 2, 4}, generator),
          torch::randint(0, 3, {samples, 2}, generator, torch::kInt64)};
}

struct NetImpl : torch::nn::Module {
  NetImpl() { register_module("layer", layer); }
  torch::Tensor forward(const torch::Tensor& x) { return layer(x); }
  torch::nn::Linear layer{4, 3};
};
TORCH_MODULE(Net);

class OwnProgram : public testing::Test {
 protected:
  void SetUp() override {
    torch::set_num_threads(1);
    options_.batch = 4;
    options_.optimizer = {"sgd", 0.5, 0, 0};
  }

  static data::DataPair data_of(const Tokens& tokens) {
    const auto set = std::make_shared<data::TensorDataset>(tokens.inputs, tokens.targets, 3);
    return {"tokens", set, set};
  }

  using Rank = RankToTrain<Net>;
  // What a test gives to its task, on each rank.
  using Complete = std::function<void(Rank& rank)>;

  // Trains on `ranks` ranks, and returns rank 0's end. Rethrows the exception of a rank.
  TrainedRank train(int ranks, const data::DataPair& data, const Complete& complete) {
    return train_ranks(
        ranks, options_, data, [] { return Net(); }, complete)[0];
  }

  static void expect_near(const test::Values& a, const test::Values& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, value] : a) {
      EXPECT_TRUE(torch::allclose(value, b.at(name), 1e-5, 1e-6)) << name;
    }
  }

  test::TemporaryDirectory temporary_;
  TrainOptions options_;
};

void nothing_own(RankToTrain<Net>&) {}

TEST(GroupRatesOfAnOptimizer, KeepTheirProportions) {
  const auto a = torch::ones({2}).requires_grad_();
  const auto b = torch::ones({2}).requires_grad_();
  const auto c = torch::ones({2}).requires_grad_();
  using torch::optim::SGDOptions;
  torch::optim::SGD optimizer(
      {torch::optim::OptimizerParamGroup({a}, std::make_unique<SGDOptions>(0.1)),
       torch::optim::OptimizerParamGroup({b}, std::make_unique<SGDOptions>(0.4)),
       torch::optim::OptimizerParamGroup({c}, std::make_unique<SGDOptions>(0.0))},
      SGDOptions(0.3));
  const GroupRates rates(optimizer);
  EXPECT_EQ(rates.base(), 0.4);
  rates.set(optimizer, 0.2);
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.05);
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[1].options().get_lr(), 0.2);
  EXPECT_EQ(optimizer.param_groups()[2].options().get_lr(), 0);
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({torch::ones({1})}));
  EXPECT_THAT(error_of([&] { rates.set(optimizer, 0.1); }),
              HasSubstr("has 4 parameter groups, but it had 3"));
}

TEST(GroupRatesOfAnOptimizer, MustBeNumbers) {
  torch::optim::SGD optimizer({torch::ones({2})}, torch::optim::SGDOptions(0.1));
  optimizer.param_groups()[0].options().set_lr(std::nan(""));
  EXPECT_THAT(error_of([&] { GroupRates{optimizer}; }), HasSubstr("learning rate of nan"));
}

TEST(BatchOfARank, IsAPartOfTheGlobalBatch) {
  TrainOptions options;
  options.batch = 5;
  EXPECT_EQ(batch_per_rank(options, 3), 5);
  options.global_batch = 24;
  EXPECT_EQ(batch_per_rank(options, 3), 8);
  options.micro_batches = 2;
  EXPECT_EQ(batch_per_rank(options, 3), 4);
  EXPECT_THAT(error_of([&] { batch_per_rank(options, 5); }),
              HasSubstr("a global batch of 24 cannot be divided equally among 5 ranks with 2 "
                        "micro-batches each; use 20 or 30, or another number of ranks"));
  options.global_batch = 3;
  options.micro_batches = 1;
  EXPECT_THAT(error_of([&] { batch_per_rank(options, 4); }), HasSubstr("use 4, or another"));
}

TEST(BlocksOfARank, AreItsEqualPartOfAFixedNumber) {
  TrainOptions options;
  options.global_batch = 96;
  options.blocks = 12;
  for (const int ranks : {1, 2, 3, 4, 6, 12}) {
    EXPECT_EQ(batch_per_rank(options, ranks), 8);
    EXPECT_EQ(micro_batches_per_rank(options, ranks), 12 / ranks);
  }
  EXPECT_EQ(describe_possible_ranks(12), "1, 2, 3, 4, 6 or 12");
  EXPECT_EQ(describe_possible_ranks(1), "1");
  EXPECT_THAT(error_of([&] { micro_batches_per_rank(options, 5); }),
              HasSubstr("the 12 blocks of a step (--blocks) cannot be divided equally among 5 "
                        "ranks; use 4 or 6 ranks, or another number of blocks"));
  EXPECT_THAT(error_of([&] { micro_batches_per_rank(options, 24); }), HasSubstr("use 12 ranks,"));
  options.global_batch = 100;
  EXPECT_THAT(error_of([&] { batch_per_rank(options, 4); }),
              HasSubstr("cannot be divided into 12 blocks of one size; use 96 or 108, or"));
}

TEST(BlocksOfARank, DoNotGoTogetherWithWhatDependsOnTheNumberOfRanks) {
  TrainOptions options;
  options.blocks = 12;
  EXPECT_THAT(error_of([&] { require_possible_with_blocks(options); }),
              HasSubstr("give that, too, as --global-batch"));
  options.global_batch = 96;
  EXPECT_NO_THROW(require_possible_with_blocks(options));
  options.micro_batches = 2;
  EXPECT_THAT(error_of([&] { require_possible_with_blocks(options); }), HasSubstr("--accumulate"));
  options.micro_batches = 1;
  options.staleness = 1;
  EXPECT_THAT(error_of([&] { require_possible_with_blocks(options); }), HasSubstr("--staleness"));
}

TEST_F(OwnProgram, GlobalBatchTrainsTheSameOnAnyNumberOfRanks) {
  const auto data = data_of(tokens(24));
  options_.batch = 8;
  const auto one = train(1, data, nothing_own);
  options_.batch = 64;  // not used
  options_.global_batch = 8;
  expect_near(train(1, data, nothing_own).state, one.state);
  expect_near(train(4, data, nothing_own).state, one.state);
}

TEST_F(OwnProgram, OptimizerAndScheduleReplaceThoseOfTheOptions) {
  const auto data = data_of(tokens(24));
  std::vector<double> seen;
  const auto own = train(1, data, [&](Rank& rank) {
    rank.task.optimizer = [](torch::nn::Module& module) {
      return std::make_unique<torch::optim::RMSprop>(module.parameters(),
                                                     torch::optim::RMSpropOptions(0.25));
    };
    rank.task.schedule = [](const SchedulePoint& at) {
      EXPECT_EQ(at.planned_steps, 6);
      return 1.0 / static_cast<double>(1 + at.step);
    };
    rank.task.callbacks.after_step = [&](const StepEvent& event) {
      seen.push_back(event.learning_rate);
    };
  });
  ASSERT_EQ(seen.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_DOUBLE_EQ(seen[i], 0.25 / static_cast<double>(1 + i)) << i;
  }

  // The same steps by hand.
  auto net = test::seeded([] { return Net(); });
  torch::optim::RMSprop optimizer(net->parameters(), torch::optim::RMSpropOptions(0.25));
  data::DistributedSampler sampler(24, options_.seed, {.batch = 4});
  sampler.set_epoch(0);
  for (std::int64_t step = 0; step < 6; ++step) {
    const auto batch = data.train->get(sampler.indices(step, 0));
    optimizer.param_groups()[0].options().set_lr(0.25 / static_cast<double>(1 + step));
    optimizer.zero_grad();
    mean_cross_entropy(net->forward(test::on_test_device(batch.inputs)),
                       test::on_test_device(batch.targets))
        .backward();
    optimizer.step();
  }
  expect_near(own.state, test::values_of(*net));
}

TEST_F(OwnProgram, OptimizersThatCheckpointsCannotHoldNeedNoCheckpoints) {
  options_.checkpoint.directory = temporary_.path() / "checkpoints";
  int steps = 0;
  EXPECT_THAT(error_of([&] {
                train(1, data_of(tokens(8)), [&](Rank& rank) {
                  rank.task.optimizer = [](torch::nn::Module& module) {
                    return std::make_unique<torch::optim::LBFGS>(module.parameters());
                  };
                  rank.task.callbacks.after_step = [&](const StepEvent&) { ++steps; };
                });
              }),
              HasSubstr("checkpoints can hold the state of SGD, Adam, AdamW, RMSprop and Adagrad"));
  EXPECT_EQ(steps, 0) << "found before training";
}

TEST_F(OwnProgram, RunsWithOptimizersOfLibtorchResumeToTheBit) {
  using namespace torch::optim;
  const std::vector<OptimizerFactory> factories{
      [](torch::nn::Module& m) {
        return std::make_unique<RMSprop>(m.parameters(),
                                         RMSpropOptions(0.1).momentum(0.5).centered(true));
      },
      [](torch::nn::Module& m) {
        return std::make_unique<Adagrad>(m.parameters(), AdagradOptions(0.1).lr_decay(0.5));
      }};
  const auto data = data_of(tokens(16));
  for (std::size_t i = 0; i < factories.size(); ++i) {
    const auto run = [&](std::int64_t epochs) {
      options_.epochs = epochs;
      return train(2, data, [&](Rank& rank) { rank.task.optimizer = factories[i]; });
    };
    options_.checkpoint.directory.clear();
    const auto whole = run(4);
    options_.checkpoint.directory = temporary_.path() / std::to_string(i);
    run(2);
    EXPECT_EQ(run(4).result.parameters_crc32c, whole.result.parameters_crc32c) << i;
  }
}

TEST_F(OwnProgram, FactoriesAndSchedulesThatAreWrongAreNamed) {
  const auto data = data_of(tokens(8));
  EXPECT_THAT(error_of([&] {
                train(2, data, [](Rank& rank) {
                  rank.task.optimizer = [](torch::nn::Module&) { return nullptr; };
                });
              }),
              HasSubstr("the task's function that makes the optimizer returned none"));
  EXPECT_THAT(error_of([&] {
                train(2, data, [](Rank& rank) {
                  rank.task.schedule = [](const SchedulePoint&) { return -1; };
                });
              }),
              HasSubstr("the task's schedule returned -1 for step 0"));
}

// Batches of three tensors: the third are weights of the targets.
struct Weighted : data::Dataset {
  explicit Weighted(Tokens its) : tokens(std::move(its)) {}
  std::int64_t size() const override { return tokens.inputs.size(0); }
  data::SampleShape shape() const override { return {{2, 4}, 3, false}; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    const auto rows = torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
    return {tokens.inputs.index_select(0, rows), tokens.targets.index_select(0, rows), {rows + 1}};
  }
  Tokens tokens;
};

TEST_F(OwnProgram, BatchLossSeesAllTensors) {
  const auto set = std::make_shared<Weighted>(tokens(16));
  const data::DataPair data{"weighted", set, set};
  const auto trained = train(2, data, [](Rank& rank) {
    rank.task.forward = nullptr;
    rank.task.batch_loss = [&net = rank.model](const data::Batch& batch) {
      EXPECT_EQ(batch.more.size(), 1U);
      EXPECT_EQ(batch.more[0].device(), batch.inputs.device());
      return (net->forward(batch.inputs).mean({1, 2}) * batch.more[0]).mean();
    };
    rank.task.metrics = {{"number", [](const torch::Tensor& outputs, const data::Batch& batch) {
                            EXPECT_FALSE(outputs.defined());
                            return batch.more[0].to(torch::kFloat32).mean();
                          }}};
  });
  EXPECT_TRUE(std::isnan(trained.result.evaluation.accuracy));
  EXPECT_DOUBLE_EQ(trained.result.evaluation.metrics.at("number"), 8.5);
  EXPECT_NE(trained.result.evaluation.loss, 0);
}

// Some positions do not count. Weighted by the others, the ranks average as one process does.
TEST_F(OwnProgram, WeightsMakeBatchesOfUnequalLengthAverageByTargets) {
  auto some = tokens(24);
  some.targets.index_put_({torch::indexing::Slice(0, 24, 2), 0}, kIgnored);
  const auto data = data_of(some);
  const auto weigh = [](Rank& rank) {
    rank.task.weight = [](const data::Batch& batch) {
      return batch.targets.ne(kIgnored).sum().item<double>();
    };
  };
  options_.batch = 8;
  const auto one = train(1, data, nothing_own);  // one mean over all targets of a step
  options_.batch = 2;
  options_.micro_batches = 2;
  const auto two = train(2, data, weigh);
  expect_near(two.state, one.state);
  EXPECT_NEAR(two.result.train_loss, one.result.train_loss, 1e-5);
  EXPECT_EQ(two.result.evaluation.targets, some.targets.ne(kIgnored).sum().item<std::int64_t>());
  options_.batch = 8;
  options_.micro_batches = 1;
  EXPECT_NEAR(two.result.evaluation.loss, train(1, data, weigh).result.evaluation.loss, 1e-5);

  options_.batch = 2;
  options_.micro_batches = 2;
  const auto equal = train(2, data, nothing_own);
  EXPECT_FALSE(
      torch::allclose(equal.state.at("layer.weight"), one.state.at("layer.weight"), 1e-3, 1e-3));
}

// The loss of a batch without targets is 0 / 0.
TEST_F(OwnProgram, BatchWithoutWeightContributesNothing) {
  auto some = tokens(4);
  some.targets.slice(0, 0, 3).fill_(kIgnored);
  options_.batch = 1;
  const auto trained = train(4, data_of(some), [](Rank& rank) {
    rank.task.weight = [](const data::Batch& batch) {
      return batch.targets.ne(kIgnored).sum().item<double>();
    };
  });
  for (const auto& [name, value] : trained.state) {
    EXPECT_TRUE(value.isfinite().all().item<bool>()) << name;
  }
  EXPECT_TRUE(std::isfinite(trained.result.train_loss));
  EXPECT_TRUE(std::isfinite(trained.result.evaluation.loss));
}

// The derivatives of 0/0 are not numbers either.
TEST_F(OwnProgram, MeanOverNothingContributesNothing) {
  auto some = tokens(4);
  some.targets.slice(0, 0, 3).fill_(kIgnored);
  options_.batch = 1;
  const auto with_loss = [&](const LossFunction& loss) {
    return train(4, data_of(some), [&](Rank& rank) {
      rank.task.weight = [](const data::Batch& batch) {
        return batch.targets.ne(kIgnored).sum().item<double>();
      };
      rank.task.loss = loss;
    });
  };
  const auto masked = with_loss([](const torch::Tensor& outputs, const torch::Tensor& targets) {
    const auto counts = targets.ne(kIgnored);
    const auto losses = -outputs.log_softmax(-1)
                             .gather(-1, targets.masked_fill(counts.logical_not(), 0).unsqueeze(-1))
                             .squeeze(-1);
    return (losses * counts).sum() / counts.sum();
  });
  expect_near(masked.state, with_loss({}).state);
}

TEST_F(OwnProgram, WeightsThatMakeNoSenseAreNamed) {
  const auto data = data_of(tokens(8));
  const auto with = [&](double weight) {
    return error_of([&] {
      train(2, data,
            [&](Rank& rank) { rank.task.weight = [=](const data::Batch&) { return weight; }; });
    });
  };
  EXPECT_THAT(with(0), HasSubstr("the weights of all batches of a step are 0"));
  EXPECT_THAT(with(-1), HasSubstr("the weight of a batch is -1"));
  EXPECT_THAT(with(std::nan("")), HasSubstr("the weight of a batch is nan"));
}

TEST_F(OwnProgram, MetricsAreAveragedOverAllSamples) {
  const auto some = tokens(11);  // shares and last batches of different sizes
  for (const int ranks : {1, 2, 3}) {
    options_.batch = 3;
    const auto trained = train(ranks, data_of(some), [](Rank& rank) {
      rank.task.metrics = {{"targets", [](const torch::Tensor& outputs, const data::Batch& batch) {
                              EXPECT_EQ(outputs.size(0), batch.targets.size(0));
                              return batch.targets.to(torch::kFloat32).mean();
                            }}};
    });
    EXPECT_NEAR(trained.result.evaluation.metrics.at("targets"),
                some.targets.to(torch::kFloat64).mean().item<double>(), 1e-6)
        << ranks;
    EXPECT_GT(trained.result.evaluation.accuracy, 0);
  }
}

TEST_F(OwnProgram, PartsThatDoNotFitAreNamed) {
  const auto data = data_of(tokens(8));
  const auto error = [&](const Complete& complete) {
    return error_of([&] { train(2, data, complete); });
  };
  const auto mean = [](const torch::Tensor& outputs, const data::Batch&) { return outputs.mean(); };
  EXPECT_THAT(error([](Rank& rank) { rank.task.forward = nullptr; }),
              HasSubstr("neither a forward function nor a batch_loss"));
  EXPECT_THAT(error([](Rank& rank) {
                rank.task.loss = [](const auto& y, const auto&) { return y.mean(); };
                rank.task.batch_loss = [](const data::Batch& b) { return b.inputs.mean(); };
              }),
              HasSubstr("a loss and a batch_loss"));
  EXPECT_THAT(error([&](Rank& rank) {
                rank.task.metrics = {{"loss", mean}};
              }),
              HasSubstr("two metrics named 'loss'"));
  EXPECT_THAT(error([&](Rank& rank) {
                rank.task.metrics = {{"", mean}};
              }),
              HasSubstr("lacks its name"));
  EXPECT_THAT(error([](Rank& rank) {
                rank.task.metrics = {{"all", [](const auto& y, const auto&) { return y; }}};
              }),
              HasSubstr("the metric 'all' must return one number"));
  EXPECT_THAT(
      error([](Rank& rank) { rank.task.loss = [](const auto& y, const auto&) { return y; }; }),
      HasSubstr("not a tensor of shape [4, 2, 3]"));
  EXPECT_THAT(error([](Rank& rank) {
                rank.task.loss = [](const auto&, const auto&) { return torch::Tensor(); };
              }),
              HasSubstr("the loss function returned no tensor"));
}

TEST_F(OwnProgram, CallbacksAreCalledInOrderOnAllRanks) {
  options_.epochs = 2;
  options_.checkpoint.directory = temporary_.path();
  std::mutex mutex;
  std::vector<std::string> events[2];
  train(2, data_of(tokens(16)), [&](Rank& rank) {
    const auto note = [&, number = rank.group.rank()](const std::string& text) {
      const std::lock_guard lock(mutex);
      events[number].push_back(text);
    };
    rank.task.callbacks.after_step = [=](const StepEvent& e) {
      EXPECT_GT(e.seconds, 0);
      note("step " + std::to_string(e.step) + " of epoch " + std::to_string(e.epoch));
    };
    rank.task.callbacks.after_evaluation = [=](const EvaluationEvent& e) {
      note("evaluation after " + std::to_string(e.step));
      EXPECT_EQ(e.evaluation.targets, 32);
      return Next::go_on;
    };
    rank.task.callbacks.after_epoch = [=](const EpochEvent& e) {
      note("epoch " + std::to_string(e.epoch));
      EXPECT_GT(e.train_loss, 0);
      return Next::go_on;
    };
    rank.task.callbacks.after_save = [=, &group = rank.group](const SaveEvent& e) {
      note("saved " + std::to_string(e.step));
      EXPECT_EQ(e.directory.empty(), group.rank() != 0);
    };
  });
  for (auto& of_rank : events) {
    const auto last = std::find(of_rank.rbegin(), of_rank.rend(), "saved 4");
    EXPECT_EQ(last, of_rank.rbegin());
    std::erase_if(of_rank, [](const std::string& text) { return text.starts_with("saved"); });
    EXPECT_THAT(of_rank, ElementsAre("step 1 of epoch 0", "step 2 of epoch 0", "evaluation after 2",
                                     "epoch 0", "step 3 of epoch 1", "step 4 of epoch 1",
                                     "evaluation after 4", "epoch 1"));
  }
}

// A process that resumes from a state does not make its steps again, so their rows must not be lost
// with the process that saved it.
TEST_F(OwnProgram, RowsOfStepsAreInTheFileOnceTheStateIsSaved) {
  options_.epochs = 1;
  options_.checkpoint.directory = temporary_.path() / "checkpoints";
  options_.checkpoint.every_steps = 2;
  options_.report_directory = temporary_.path() / "report";
  train(1, data_of(tokens(24)), [&](Rank& rank) {
    rank.task.callbacks.after_step = [&](const StepEvent& event) {
      if (event.step % 2 != 0 || event.step == 6) return;  // the last one is saved after the epoch
      const auto text = test::text_of(options_.report_directory / "steps.csv");
      EXPECT_EQ(std::ranges::count(text, '\n'), 1 + event.step) << text;
    };
  });
}

TEST_F(OwnProgram, OneRankCanStopAllRanks) {
  options_.epochs = 5;
  options_.checkpoint.directory = temporary_.path();
  for (const bool by_evaluation : {false, true}) {
    options_.checkpoint.directory = temporary_.path() / std::to_string(by_evaluation);
    const auto trained = train(2, data_of(tokens(16)), [&](Rank& rank) {
      const auto decide = [&group = rank.group] {
        return group.rank() == 1 ? Next::stop : Next::go_on;
      };
      if (by_evaluation) {
        rank.task.callbacks.after_evaluation = [=](const EvaluationEvent&) { return decide(); };
        rank.task.callbacks.after_epoch = [](const EpochEvent&) { return Next::go_on; };
      } else {
        rank.task.callbacks.after_epoch = [=](const EpochEvent&) { return decide(); };
      }
    });
    EXPECT_TRUE(trained.result.stopped_early);
    EXPECT_EQ(trained.result.step, 2);
    EXPECT_EQ(trained.result.evaluation.targets, 32);
    EXPECT_EQ(trained.result.checkpoint.filename(), "step-00000002");
  }
}

TEST_F(OwnProgram, CallbackThatThrowsStopsAllRanks) {
  EXPECT_THAT(error_of([&] {
                train(2, data_of(tokens(16)), [](Rank& rank) {
                  rank.task.callbacks.after_step = [&group = rank.group](const StepEvent& e) {
                    if (group.rank() == 1 && e.step == 2) throw RuntimeError("the disk is full");
                  };
                });
              }),
              HasSubstr("the disk is full"));
}

TEST_F(OwnProgram, LogReplacesStandardOutput) {
  options_.log_every_steps = 1;
  options_.checkpoint.directory = temporary_.path();
  std::vector<std::string> lines;
  const auto train_with_log = [&] {
    lines.clear();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    train(2, data_of(tokens(16)), [&](Rank& rank) {
      rank.task.log = [&](const std::string& line) { lines.push_back(line); };
    });
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  };
  train_with_log();
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[0], HasSubstr("holds no checkpoint: training starts from the beginning"));
  EXPECT_THAT(lines[1], HasSubstr("step 1/2  50%"));
  EXPECT_THAT(lines[3], HasSubstr("eval loss"));

  // The lines and warnings of checkpoints, too.
  options_.epochs = 2;
  options_.checkpoint.after_save = "exit 3";
  train_with_log();
  EXPECT_THAT(lines.front(), HasSubstr("resumed from"));
  EXPECT_THAT(lines, testing::Contains(testing::StartsWith(
                         "warning: the command after the checkpoint of step 4")));
}

TEST_F(OwnProgram, AverageOfTheWeightsFollowsItsFormula) {
  auto net = test::seeded([] { return Net(); });
  WeightAverage average(*net, 0.2);
  UserState state;
  average.save_in(state);
  auto expected = test::on_cpu(net->parameters());
  for (int step = 1; step <= 5; ++step) {
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.mul_(1.5).add_(step);
    }
    average.update(step);
    const double decay = std::min(0.2, step / (step + 9.0));
    const auto weights = test::on_cpu(net->parameters());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = expected[i] * decay + weights[i] * (1 - decay);
    }
  }
  ASSERT_EQ(state.tensors().size(), expected.size());
  EXPECT_EQ(state.tensors()[0].name, "ema/layer.weight");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(state.tensors()[i].tensor.cpu(), expected[i])) << i;
  }
  const auto before = test::on_cpu(net->parameters());
  {
    const WeightAverage::Use use(average);
    EXPECT_TRUE(torch::allclose(net->layer->weight.cpu(), expected[0]));
  }
  EXPECT_TRUE(torch::equal(net->layer->weight.cpu(), before[0]));
  average.restart();
  EXPECT_TRUE(torch::equal(state.tensors()[0].tensor.cpu(), before[0]));
}

TEST_F(OwnProgram, DecaysOutOfRangeAndAsynchronousAveragesAreRefused) {
  const auto error = [&] { return error_of([&] { train(1, data_of(tokens(8)), nothing_own); }); };
  options_.ema_decay = 1;
  EXPECT_THAT(error(), HasSubstr("ema_decay of the training is 1; use a number from 0"));
  options_.ema_decay = 0.5;
  options_.staleness = 1;
  EXPECT_THAT(error(), HasSubstr("an average of the weights needs the same weights"));
}

// Samples of torch::data with lengths of their own.
struct Sentences : torch::data::datasets::Dataset<Sentences> {
  torch::data::Example<> get(std::size_t index) override {
    const auto length = static_cast<std::int64_t>(1 + index % 3);
    return {torch::full({length, 4}, static_cast<float>(index)),
            torch::full({length}, static_cast<std::int64_t>(index % 3))};
  }
  torch::optional<std::size_t> size() const override { return 12; }
};

data::Batch padded(const std::vector<torch::data::Example<>>& sentences) {
  const auto n = static_cast<std::int64_t>(sentences.size());
  data::Batch batch{torch::zeros({n, 3, 4}), torch::full({n, 3}, kIgnored)};
  for (std::int64_t i = 0; i < n; ++i) {
    const auto& sentence = sentences[static_cast<std::size_t>(i)];
    const auto length = sentence.target.size(0);
    batch.inputs[i].slice(0, 0, length).copy_(sentence.data);
    batch.targets[i].slice(0, 0, length).copy_(sentence.target);
  }
  return batch;
}

TEST_F(OwnProgram, DataSetsOfTorchAreTrainedWithACollateFunction) {
  const auto set = data::from_torch(Sentences(), {}, padded);
  EXPECT_EQ(set->size(), 12);
  const auto trained = train(2, {"sentences", set, set}, [](Rank& rank) {
    rank.task.weight = [](const data::Batch& batch) {
      return batch.targets.ne(kIgnored).sum().item<double>();
    };
  });
  EXPECT_EQ(trained.result.evaluation.targets, 24);  // 4 * (1 + 2 + 3)
}

TEST_F(OwnProgram, SamplesOfDifferentShapesAreNamed) {
  const auto set = data::from_torch(Sentences());
  EXPECT_THAT(error_of([&] {
                train(1, {"sentences", set, nullptr}, nothing_own);
              }),
              HasSubstr("have the shape ["));
  const std::vector<std::int64_t> indices = {4, 7, 5};
  EXPECT_THAT(
      error_of([&] { set->get(indices); }),
      HasSubstr("the inputs of sample 4 have the shape [2, 4], and those of sample 5 [3, 4]"));
}

struct Endless : torch::data::datasets::Dataset<Endless> {
  torch::data::Example<> get(std::size_t) override { return {}; }
  torch::optional<std::size_t> size() const override { return {}; }
};

TEST_F(OwnProgram, DataSetsWithoutASizeAreRefused) {
  EXPECT_THAT(error_of([] { data::from_torch(Endless()); }),
              HasSubstr("a data set without a size"));
}

}  // namespace
}  // namespace ddp::train
