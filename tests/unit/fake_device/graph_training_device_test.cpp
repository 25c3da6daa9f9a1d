// SPDX-License-Identifier: Apache-2.0
// Training whose steps are replays of a graph, on the fake device: see Note [Graphs of steps].
#include <ATen/Context.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/train/objective/half_cross_entropy.h"
#include "ddp_runtime/train/trainer.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/comm/device/staged_ranks.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::fake_device {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kGraphSteps = 12;
constexpr std::int64_t kNeverCaptured = 1000;  // steps of warm-up

data::DataPair text_data(const fs::path& directory) {
  const auto file = directory / "text.txt";
  std::ofstream text(file);
  for (int i = 0; i < 400; ++i) text << "line " << i * i << " of this text\n";
  text.close();
  data::DataOptions options;
  options.context = 16;
  return data::open_data("text:" + file.string(), options);
}

data::DataPair images() {
  data::DataOptions options;
  options.synthetic = {{1, 28, 28}, 10, 200};
  return data::open_data("synthetic", options);
}

// A loss function that is not finite in these training steps, numbered from 1. It counts on the
// device, so that replays count, too.
train::LossFunction not_finite_in(const std::vector<int>& steps) {
  const auto step = torch::zeros({}).to(device());
  return [step, steps](const torch::Tensor& scores, const torch::Tensor& targets) {
    const auto mean = torch::nn::functional::cross_entropy(scores, targets);
    if (!scores.requires_grad()) return mean;
    step.add_(1);
    auto bad = torch::zeros_like(step);
    for (const int number : steps) bad = bad + step.eq(number);
    return mean / (1 - bad);
  };
}

std::vector<std::string> skipped_in(const std::string& output) {
  std::vector<std::string> lines;
  std::stringstream text(output);
  for (std::string line; std::getline(text, line);) {
    if (line.find("update skipped") != std::string::npos) lines.push_back(line);
  }
  return lines;
}

// Some batches have one sample less, whose first one is NaN on request.
class UnevenBatches final : public data::Dataset {
 public:
  UnevenBatches(std::shared_ptr<const data::Dataset> all, std::set<int> shorter, bool bad = false)
      : all_(std::move(all)), shorter_(std::move(shorter)), bad_(bad) {}
  std::int64_t size() const override { return all_->size(); }
  data::SampleShape shape() const override { return all_->shape(); }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    return all_->get(indices);
  }
  data::Batch draw(std::span<const std::int64_t> indices, std::int64_t epoch) const override {
    auto batch = all_->draw(indices, epoch);
    if (!shorter_.contains(++drawn_)) return batch;
    const auto count = batch.inputs.size(0) - 1;
    batch = {batch.inputs.narrow(0, 0, count).clone(), batch.targets.narrow(0, 0, count).clone()};
    if (bad_) batch.inputs[0].fill_(NAN);
    return batch;
  }

 private:
  std::shared_ptr<const data::Dataset> all_;
  std::set<int> shorter_;
  bool bad_;
  mutable std::atomic<int> drawn_{0};
};

class GraphTraining : public FakeDeviceTest {
 protected:
  static train::TrainOptions options(const std::string& optimizer) {
    train::TrainOptions o;
    o.steps = kGraphSteps;
    o.batch = 16;
    o.optimizer.name = optimizer;
    o.optimizer.learning_rate = optimizer == "sgd" ? 0.05 : 0.002;
    o.graph = {train::GraphMode::on, 3, make_graph};
    return o;
  }

  struct Ended {
    train::RunResult result;
    std::vector<torch::Tensor> state;  // parameters and buffers
    std::string output;
  };
  // Called in each forward pass.
  using Watch = std::function<void(const torch::Tensor& inputs)>;

  Ended fit(const train::TrainOptions& o, const Watch& watch = {},
            const train::LossFunction& loss = {}) {
    Ended ended;
    testing::internal::CaptureStdout();
    const auto errors = run_(ranks_, [&](const comm::test::GpuRank& r) {
      std::shared_ptr<models::Model> model;
      {
        const std::lock_guard lock(seeding_);  // threads share one generator
        torch::manual_seed(1);
        auto generator = at::globalContext().defaultGenerator(device(r.rank));
        generator.set_current_seed(1);
        model = models::make_model(model_);
        move_to(*model, device(r.rank));
      }
      train::Trainer trainer(r.group,
                             {"test",
                              "test",
                              model_.name,
                              *model,
                              [&](const torch::Tensor& x) {
                                if (watch && r.rank == 0) watch(x);
                                return model->forward(x);
                              },
                              data_,
                              {},
                              loss},
                             o);
      const auto result = trainer.fit();
      if (r.rank > 0) return;
      ended.result = result;
      for (const auto& p : model->parameters()) ended.state.push_back(p.detach().cpu().clone());
      for (const auto& b : model->buffers()) ended.state.push_back(b.detach().cpu().clone());
    });
    ended.output = testing::internal::GetCapturedStdout();
    error_ = errors.front();
    return ended;
  }

  // The same run, whose steps are not captured.
  Ended fit_eagerly(train::TrainOptions o, const train::LossFunction& loss = {}) {
    o.graph.warm_up = kNeverCaptured;
    return fit(o, {}, loss);
  }

  void expect_same(const Ended& replayed, const Ended& eager, const std::string& what) {
    EXPECT_EQ(error_, "") << what;
    ASSERT_EQ(replayed.state.size(), eager.state.size()) << what << replayed.output;
    for (std::size_t i = 0; i < eager.state.size(); ++i) {
      EXPECT_TRUE(same_bits(replayed.state[i], eager.state[i])) << what << ", tensor " << i;
    }
    EXPECT_EQ(replayed.result.evaluation.loss, eager.result.evaluation.loss) << what;
    EXPECT_EQ(replayed.result.train_loss, eager.result.train_loss) << what;
  }

  nlohmann::json report() const {
    return nlohmann::json::parse(std::ifstream(temporary_.path() / "report" / "run.json"));
  }

  int ranks_ = 1;
  // How the ranks run: over NCCL, unless a test changes it.
  std::function<std::vector<std::string>(int, const std::function<void(comm::test::GpuRank)>&)>
      run_ = [](int ranks, const auto& body) { return comm::test::run_gpu_ranks(ranks, body); };
  std::mutex seeding_;
  test::TemporaryDirectory temporary_;
  models::ModelOptions model_{"mlp", {1, 8, 8}, 10, 0, 0};
  data::DataPair data_ = data::open_data("digits");
  std::string error_;  // of the last run
};

TEST_F(GraphTraining, LeavesTheBitsOfEagerSteps) {
  struct Case {
    const char* name;
    std::function<void(train::TrainOptions&)> change;
  };
  const std::vector<Case> cases = {
      {"plain", [](auto&) {}},
      {"clipped", [](auto& o) { o.clip_norm = 0.1; }},
      {"bf16", [](auto& o) { o.precision = amp::Precision::bf16; }},
      {"bf16 weights", [](auto& o) { o.precision = o.param_type = amp::Precision::bf16; }},
      {"scaled", [](auto& o) { o.loss_scale = 1024; }},
      {"skipping", [](auto& o) { o.on_nan = train::OnNan::skip; }},
      {"scheduled",
       [](auto& o) {
         o.warmup_steps = 6;
         o.schedule = train::Schedule::cosine;
       }},
      {"decayed", [](auto& o) { o.optimizer.weight_decay = 0.1; }},
  };
  for (const auto& c : cases) {
    for (const char* optimizer : {"sgd", "adam", "adamw"}) {
      auto o = options(optimizer);
      c.change(o);
      const auto eager = fit_eagerly(o);
      ASSERT_EQ(error_, "") << c.name;
      expect_same(fit(o), eager, std::string(c.name) + " " + optimizer);
    }
  }
}

TEST_F(GraphTraining, LeavesTheBitsOfEagerStepsForEveryKindOfModel) {
  for (const char* name : {"mnist-cnn", "gpt", "resnet18"}) {
    const bool text = std::string(name) == "gpt";
    data_ = text ? text_data(temporary_.path()) : images();
    const auto shape = data_.train->shape();
    // One class more than the data has: then the scores of gpt are padded on a device.
    const auto classes = shape.classes + (text ? 1 : 0);
    model_ = {name, shape.input, classes, text ? 16 : 8, text ? 2 : 0, text ? 2 : 0, text};
    auto o = options("adamw");
    o.steps = 6;
    o.batch = 4;
    const auto eager = fit_eagerly(o);
    ASSERT_EQ(error_, "") << name;
    expect_same(fit(o), eager, name);
  }
}

// In steps of the warm-up, and in replays.
TEST_F(GraphTraining, SkipsTheStepsThatEagerStepsSkip) {
  const auto expect_skips = [&](const train::TrainOptions& o, const std::vector<int>& steps) {
    const auto eager = fit_eagerly(o, not_finite_in(steps));
    EXPECT_EQ(skipped_in(eager.output).size(), 3U) << eager.output << error_;
    const auto replayed = fit(o, {}, not_finite_in(steps));
    EXPECT_EQ(skipped_in(replayed.output), skipped_in(eager.output)) << error_;
    expect_same(replayed, eager, o.optimizer.name);
  };
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const bool scaled : {true, false}) {
      auto o = options(optimizer);
      o.on_nan = train::OnNan::skip;
      o.loss_scale = scaled ? 1024 : 0;
      expect_skips(o, {2, 6, 7});
      // If the whole warm-up is skipped, the optimizer has no state to capture yet.
      expect_skips(o, {1, 2, 3});
    }
  }
  // With running means, which a skipped step must not change.
  data_ = images();
  model_ = {"resnet18", {1, 28, 28}, 10, 8, 0, 0};
  auto o = options("adamw");
  o.on_nan = train::OnNan::skip;
  o.steps = 8;
  o.batch = 4;
  expect_skips(o, {2, 6, 7});
}

TEST_F(GraphTraining, StopsAtALossThatIsNotFinite) {
  auto o = options("sgd");
  fit(o, {}, not_finite_in({7}));
  EXPECT_THAT(error_, HasSubstr("the loss is not finite on rank 0 in step 7"));
}

TEST_F(GraphTraining, BatchOfAnotherShapeRunsEagerly) {
  const auto all = data_.train;
  for (const bool skips : {false, true}) {
    auto o = options("adamw");
    if (skips) o.on_nan = train::OnNan::skip;
    const auto run = [&](std::int64_t warm_up) {
      auto mine = o;
      mine.graph.warm_up = warm_up;
      data_.train = std::make_shared<UnevenBatches>(all, std::set<int>{7, 8, 10});
      // Step 8 runs eagerly, and the next one is a replay.
      return fit(mine, {}, skips ? not_finite_in({8}) : train::LossFunction());
    };
    const auto eager = run(kNeverCaptured);
    const auto replayed = run(3);
    expect_same(replayed, eager, "uneven");
    EXPECT_THAT(replayed.output, HasSubstr("batches of another shape run eagerly"));
  }
}

TEST_F(GraphTraining, ResumesInTheMiddle) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const bool scaled : {false, true}) {
      auto o = options(optimizer);
      if (scaled) o.loss_scale = 1024;
      const auto expected = fit_eagerly(o);
      o.checkpoint.directory =
          temporary_.path() / (optimizer + std::to_string(static_cast<int>(scaled)));
      o.checkpoint.every_steps = 5;
      expect_same(fit(o), expected, "with checkpoints");
      for (const auto& entry : fs::directory_iterator(o.checkpoint.directory)) {
        const auto name = entry.path().filename().string();
        if (name.starts_with("step-") && name != "step-00000005") fs::remove_all(entry.path());
      }
      auto resumed = fit(o);
      EXPECT_EQ(resumed.result.taken, kGraphSteps - 5);
      resumed.result.train_loss = expected.result.train_loss;
      expect_same(resumed, expected, "resumed");
    }
  }
}

// Each draws numbers in the same order, also for the evaluation in the middle.
TEST_F(GraphTraining, DrawsTheRandomNumbersOfEagerSteps) {
  auto o = options("sgd");
  o.epochs = 2;
  o.steps = 0;
  o.batch = 256;
  const auto loss = [](const torch::Tensor& scores, const torch::Tensor& targets) {
    return torch::nn::functional::cross_entropy(torch::dropout(scores, 0.2, true), targets);
  };
  const auto eager = fit_eagerly(o, loss);
  expect_same(fit(o, {}, loss), eager, "dropout");
}

TEST_F(GraphTraining, CapturesTheLossOfHalfPrecisionScores) {
  const auto loss = [](const torch::Tensor& scores, const torch::Tensor& targets) {
    return train::half_cross_entropy(scores.to(torch::kBFloat16), targets);
  };
  const auto o = options("adamw");
  const auto eager = fit_eagerly(o, loss);
  ASSERT_EQ(error_, "");
  expect_same(fit(o, {}, loss), eager, "half-precision loss");
}

TEST_F(GraphTraining, ReplayMakesNoHostWaitAndFewLaunches) {
  data_.evaluation = nullptr;
  struct Case {
    const char* name;
    std::function<void(train::TrainOptions&)> change;
    int launches;  // batch: 4, replay: 1, loss: 1, its check: 1 if it stops the run, facts: 1
  };
  for (const auto& c :
       {Case{"plain", [](auto&) {}, 7}, Case{"scaled", [](auto& o) { o.loss_scale = 1024; }, 8},
        Case{"skipping", [](auto& o) { o.on_nan = train::OnNan::skip; }, 7}}) {
    const auto launches_of = [&](std::int64_t steps) {
      auto o = options("adamw");
      o.clip_norm = 1;
      o.parallel.check_parameters_every = 0;
      o.steps = steps;
      c.change(o);
      reset();
      fit(o);
      EXPECT_EQ(error_, "");
      return std::pair(launches(), host_wait_names());
    };
    const auto few = launches_of(20);
    const auto many = launches_of(30);
    EXPECT_EQ(many.first - few.first, 10 * c.launches) << c.name;
    EXPECT_EQ(many.second, few.second) << c.name;
  }
}

TEST_F(GraphTraining, RunsTheForwardFunctionOnlyUntilTheCapture) {
  data_.evaluation = nullptr;
  int calls = 0;
  fit(options("sgd"), [&](const torch::Tensor&) { ++calls; });
  EXPECT_EQ(calls, 4);
}

TEST_F(GraphTraining, ReportSaysHowManyStepsWereReplays) {
  auto o = options("sgd");
  o.report_directory = temporary_.path() / "report";
  fit(o);
  EXPECT_EQ(report().at("graph"), true);
  EXPECT_EQ(report().at("graph_steps"), kGraphSteps - 3);
  EXPECT_EQ(report().at("settings").at("graph"), "on");
  fs::remove_all(o.report_directory);
  fit_eagerly(o);
  EXPECT_EQ(report().at("graph"), false);
  EXPECT_EQ(report().at("graph_steps"), 0);
}

// ---- several ranks, whose collectives run between the parts of the graph

class GraphTrainingOfRanks : public GraphTraining {
 protected:
  GraphTrainingOfRanks() { ranks_ = 2; }
  static train::TrainOptions with_buckets(const std::string& optimizer) {
    auto o = options(optimizer);
    o.parallel.buckets = {2048, 4096};
    return o;
  }
};

TEST_F(GraphTrainingOfRanks, LeaveTheBitsOfEagerSteps) {
  struct Case {
    const char* name;
    std::function<void(train::TrainOptions&)> change;
  };
  const std::vector<Case> cases = {
      {"plain", [](auto&) {}},
      {"clipped", [](auto& o) { o.clip_norm = 0.1; }},
      {"scaled", [](auto& o) { o.loss_scale = 1024; }},
      {"skipping", [](auto& o) { o.on_nan = train::OnNan::skip; }},
      {"compared", [](auto& o) { o.parallel.check_parameters_every = 2; }},
      {"static", [](auto& o) { o.parallel.static_graph = true; }},
  };
  for (const auto& c : cases) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      auto o = with_buckets(optimizer);
      c.change(o);
      const auto eager = fit_eagerly(o);
      ASSERT_EQ(error_, "") << c.name;
      expect_same(fit(o), eager, std::string(c.name) + " " + optimizer);
    }
  }
}

TEST_F(GraphTrainingOfRanks, BroadcastBuffersAndResume) {
  data_ = images();
  model_ = {"resnet18", {1, 28, 28}, 10, 8, 0, 0};
  auto o = options("adamw");
  o.steps = 7;
  o.batch = 4;
  const auto expected = fit_eagerly(o);
  o.checkpoint.directory = temporary_.path() / "checkpoints";
  o.checkpoint.every_steps = 5;
  expect_same(fit(o), expected, "with checkpoints");
  fs::remove_all(o.checkpoint.directory / "step-00000007");
  auto resumed = fit(o);
  resumed.result.train_loss = expected.result.train_loss;
  expect_same(resumed, expected, "resumed");
}

// A rank that cannot capture its step, or whose batch has another shape, meets the collectives of
// the others.
TEST_F(GraphTrainingOfRanks, MayRunEagerlyWhileOthersReplay) {
  auto o = with_buckets("adamw");
  o.on_nan = train::OnNan::skip;
  const auto expected = fit_eagerly(o);
  o.graph.mode = train::GraphMode::automatic;
  const auto ended = fit(o, [](const torch::Tensor& x) { x.sum().item<float>(); });
  expect_same(ended, expected, "rank 0 eager");
  EXPECT_THAT(ended.output, HasSubstr("graph: steps run eagerly"));
}

// The other rank replays that step, and knows later that the scale has changed. At the end of the
// run, the ranks compare their parameters.
TEST_F(GraphTrainingOfRanks, MayRunAStepEagerlyThatIsSkipped) {
  const auto all = data_.train;
  auto o = with_buckets("adamw");
  o.on_nan = train::OnNan::skip;
  for (const double scale : {0.0, 1024.0}) {
    o.loss_scale = scale;
    // About the eighth batch of one of the ranks, which load theirs ahead.
    data_.train = std::make_shared<UnevenBatches>(all, std::set<int>{16}, /*bad=*/true);
    const auto ended = fit(o);
    EXPECT_EQ(error_, "") << scale;
    EXPECT_EQ(skipped_in(ended.output).size(), 1U) << ended.output;
  }
}

// One replay for each part: before the first collective, for each bucket, the rest of backward,
// and the update.
TEST_F(GraphTrainingOfRanks, ReplayMakesNoHostWaitAndFewLaunches) {
  data_.evaluation = nullptr;
  const auto launches_of = [&](std::int64_t steps) {
    auto o = with_buckets("adamw");
    o.parallel.check_parameters_every = 0;
    o.steps = steps;
    reset();
    fit(o);
    EXPECT_EQ(error_, "");
    return std::pair(launches(), host_wait_names());
  };
  const auto few = launches_of(20);
  const auto many = launches_of(30);
  const int each = (many.first - few.first) / 10 / ranks_;
  EXPECT_EQ(many.first - few.first, 10 * each * ranks_);
  EXPECT_LT(each, 14);
  EXPECT_EQ(many.second, few.second);
}

TEST_F(GraphTrainingOfRanks, ReportHasTheirCollectives) {
  auto o = with_buckets("sgd");
  o.report_directory = temporary_.path() / "report";
  fit(o);
  EXPECT_EQ(error_, "");
  EXPECT_EQ(report().at("graph"), true);
  EXPECT_GT(report().at("comm").at("bytes_per_step").get<double>(), 1000);
}

TEST_F(GraphTrainingOfRanks, StopAtALossThatIsNotFinite) {
  auto o = with_buckets("sgd");
  fit(o, {}, [](const torch::Tensor& scores, const torch::Tensor& targets) {
    return torch::nn::functional::cross_entropy(scores, targets) * scores.sum().exp().exp().exp();
  });
  EXPECT_THAT(error_, HasSubstr("the loss is not finite on rank"));
}

// As with --backend mpi.
class GraphTrainingThroughTheHost : public GraphTrainingOfRanks {
 protected:
  GraphTrainingThroughTheHost() {
    run_ = [](int ranks, const auto& body) { return comm::test::run_staged_ranks(ranks, body); };
  }
};

TEST_F(GraphTrainingThroughTheHost, LeavesTheBitsOfEagerSteps) {
  for (const bool skips : {false, true}) {
    auto o = with_buckets("adamw");
    if (skips) o.on_nan = train::OnNan::skip;
    if (skips) o.loss_scale = 1024;
    const auto eager = fit_eagerly(o);
    ASSERT_EQ(error_, "") << skips;
    expect_same(fit(o), eager, skips ? "skipping" : "plain");
  }
}

// ---- what a graph cannot repeat

TEST_F(GraphTraining, FallsBackToEagerStepsIfTheModelHindersIt) {
  struct Case {
    const char* name;
    std::function<void(const torch::Tensor&)> watch;
  };
  const std::vector<Case> cases = {
      {"value", [](const torch::Tensor& x) { x.sum().item<float>(); }},
      {"memory", [](const torch::Tensor& x) { torch::zeros_like(x, torch::kCPU).to(device()); }},
      {"synchronize", [](const torch::Tensor&) { current_stream().synchronize(); }},
  };
  for (const auto& c : cases) {
    auto o = options("adamw");
    const auto expected = fit_eagerly(o);
    o.graph.mode = train::GraphMode::automatic;
    const auto fallen_back = fit(o, c.watch);
    expect_same(fallen_back, expected, c.name);
    EXPECT_THAT(fallen_back.output,
                HasSubstr("graph: steps run eagerly, because the step cannot be captured: the fake "
                          "GPU cannot "))
        << c.name;
    o.graph.mode = train::GraphMode::on;
    fit(o, c.watch);
    EXPECT_THAT(error_, HasSubstr("--graph on: the step cannot be captured")) << c.name;
  }
}

TEST_F(GraphTraining, RecomputedActivationsHinderIt) {
  data_ = text_data(temporary_.path());
  const auto shape = data_.train->shape();
  model_ = {"gpt", shape.input, shape.classes, 16, 2, 2, true, /*checkpoint_activations=*/true};
  auto o = options("adamw");
  o.batch = 4;
  o.steps = 6;
  const auto expected = fit_eagerly(o);
  o.graph.mode = train::GraphMode::automatic;
  const auto ended = fit(o);
  expect_same(ended, expected, "checkpointed");
  EXPECT_THAT(ended.output, HasSubstr("read or write the state of its random numbers"));
}

TEST_F(GraphTraining, WhatTheOptionsHinderIsOneLine) {
  auto o = options("sgd");
  o.micro_batches = 2;
  o.graph.mode = train::GraphMode::automatic;
  const auto ended = fit(o);
  EXPECT_EQ(error_, "");
  EXPECT_THAT(ended.output, HasSubstr("graph: steps run eagerly, because a step has 2"));
  auto sharded = options("sgd");
  sharded.shard = Shard::optimizer;
  sharded.graph.mode = train::GraphMode::automatic;
  EXPECT_THAT(fit(sharded).output,
              HasSubstr("because the optimizer is divided among the ranks (--shard)"));
  o.graph.mode = train::GraphMode::on;
  fit(o);
  EXPECT_THAT(error_, HasSubstr("--graph on: steps cannot be captured as a graph, because a step"));
  o.micro_batches = 1;
  o.graph.make = make_cuda_graph;
  fit(o);
  EXPECT_THAT(error_, HasSubstr("there are no graphs for fakegpu"));
}

}  // namespace
}  // namespace ddp::fake_device
