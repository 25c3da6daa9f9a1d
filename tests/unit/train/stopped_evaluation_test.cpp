// SPDX-License-Identifier: Apache-2.0
// A stop signal in an evaluation: the next process ends the epoch, or the run, as if there had been
// none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/train/ranks/step_boundary.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/saved_arrays.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t kStepsOfAnEpoch = 25;
constexpr int kBatches = 3;  // of an evaluation

// Receives a stop signal in a batch of an evaluation.
struct StoppedInEvaluation : torch::nn::Module {
  StoppedInEvaluation() { register_module("layer", layer); }
  torch::Tensor forward(const torch::Tensor& x) {
    if (!is_training() && ++evaluated == stop_at) raise(SIGUSR2);
    return layer(x.flatten(1));
  }
  torch::nn::Linear layer{64, 10};
  int evaluated = 0;
  int stop_at = 0;
};

class StoppedEvaluation : public testing::Test {
 protected:
  StoppedEvaluation() {
    torch::set_num_threads(1);
    options_.epochs = 3;
    options_.batch = 64;
    options_.checkpoint.keep_last = 1;
    options_.checkpoint.keep_every_epochs = 1;
    options_.patience = 2;  // never reached
  }

  // The signal is in batch number `stop_at` of the evaluations of this process; 0: there is none.
  RunResult run(const std::string& name, int stop_at = 0) {
    options_.checkpoint.directory = dir_ / name;
    options_.report_directory = dir_ / (name + "-report");
    std::shared_ptr<StoppedInEvaluation> model;
    const auto make = [&] {
      model = std::make_shared<StoppedInEvaluation>();
      model->stop_at = stop_at;
      return model;
    };
    auto end = train_ranks(1, options_, data_, make)[0];
    StopSignals::forget();
    evaluated_ = model->evaluated;
    said_ = end.output;
    return end.result;
  }

  static nlohmann::json json_in(const fs::path& file) {
    return nlohmann::json::parse(std::ifstream(file));
  }

  // What must not depend on stops.
  nlohmann::json left_by(const std::string& name) const {
    const auto checkpoints = dir_ / name;
    nlohmann::json left = {{"steps", steps_in(checkpoints)}};
    for (const auto& [step, path] : ckpt::CheckpointDirectory(checkpoints).candidates()) {
      const auto manifest = ckpt::Checkpoint::open(path).manifest();
      left["position"][std::to_string(step)] = manifest.state.at("position");
      left["permanent"].push_back(manifest.permanent);
      // With node-local saves, one begins before the previous one is in the directory.
      if (!options_.checkpoint.local_directory.empty()) continue;
      left["parents"].push_back(manifest.lineage->parent.value_or(0));
    }
    const auto report = json_in(dir_ / (name + "-report") / "run.json");
    for (const char* key : {"outcome", "outcome_reason", "final", "parameters_crc32c"}) {
      left[key] = report.at(key);
    }
    return left;
  }

  int set_aside(const std::string& name) const {
    return static_cast<int>(std::count_if(fs::directory_iterator(dir_ / name), {}, [](auto& e) {
      return e.path().filename().string().starts_with(".superseded");
    }));
  }

  test::TemporaryDirectory temporary_;
  fs::path dir_ = temporary_.path();
  data::DataPair data_ = data::open_data("digits");
  TrainOptions options_;
  int evaluated_ = 0;
  std::string said_;
};

TEST_F(StoppedEvaluation, SavesAfterOneMoreBatch) {
  const auto whole = run("whole");
  ASSERT_EQ(evaluated_, 3 * kBatches);
  for (const int stop_at : {1, 2 * kBatches + 1}) {  // in the first epoch, and in the last one
    const auto name = std::to_string(stop_at);
    const auto stopped = run(name, stop_at);
    EXPECT_EQ(stopped.interrupted, "SIGUSR2 was received");
    EXPECT_EQ(evaluated_, stop_at + 1);
    EXPECT_TRUE(fs::exists(stopped.checkpoint / "manifest.json"));
    EXPECT_EQ(run(name, 1).interrupted, "SIGUSR2 was received") << "in what it left";
    const auto ended = run(name);
    EXPECT_EQ(ended.step, whole.step);
    EXPECT_EQ(ended.parameters_crc32c, whole.parameters_crc32c);
    EXPECT_DOUBLE_EQ(ended.evaluation.loss, whole.evaluation.loss);
    EXPECT_EQ(evaluated_, stop_at == 1 ? 3 * kBatches : kBatches);
  }
}

// The checkpoint of the epoch is kept for good, and the run's last one and its report say that it
// has ended.
TEST_F(StoppedEvaluation, TheNextProcessLeavesWhatAnUninterruptedOneDoes) {
  run("whole");
  auto whole = left_by("whole");
  ASSERT_EQ(whole["steps"], (std::vector<std::int64_t>{25, 50, 75}));
  for (const bool local : {false, true}) {
    if (local) whole.erase("parents");
    for (const int epoch : {0, 2}) {
      const auto name = std::to_string(epoch) + (local ? "local" : "");
      options_.checkpoint.local_directory = local ? dir_ / "disk" : fs::path();
      EXPECT_EQ(run(name, epoch * kBatches + 1).step, (epoch + 1) * kStepsOfAnEpoch);
      EXPECT_TRUE(run(name).finished);
      EXPECT_EQ(left_by(name), whole) << name;
      EXPECT_EQ(set_aside(name), 0) << "the earlier state of a step is of no use";
      EXPECT_FALSE(run(name).finished);
      EXPECT_THAT(said_, HasSubstr("nothing to do: the run already finished at step 75"));
      EXPECT_EQ(left_by(name), whole) << name;
    }
  }
}

// The checkpoint that the command names is saved again by the process that ends its evaluation.
TEST_F(StoppedEvaluation, ACommandThatStartsFromItDoesSoOnce) {
  run("stopped", 1);
  options_.checkpoint.resume = (dir_ / "stopped/step-00000025").string();
  EXPECT_TRUE(run("stopped").finished);
  EXPECT_FALSE(run("stopped").finished);
  EXPECT_THAT(said_, HasSubstr("this run has already started from"));
  EXPECT_EQ(set_aside("stopped"), 0);
}

// Nothing is saved at the ends of epochs, but the last checkpoint is of the end of the last one.
TEST_F(StoppedEvaluation, TheLastCheckpointHasTheLastEvaluation) {
  options_.checkpoint.every_epoch = false;
  options_.checkpoint.keep_every_epochs = 0;
  run("whole");
  run("stopped", 2 * kBatches + 1);
  run("stopped");
  EXPECT_EQ(left_by("stopped"), left_by("whole"));
}

// The last evaluation is not at the end of an epoch, and the checkpoint is the same before it.
TEST_F(StoppedEvaluation, ARunThatEndsWithItsStepsIsCompleted) {
  options_.epochs = 0;
  options_.steps = 30;
  run("whole");
  EXPECT_FALSE(run("stopped", kBatches + 1).finished);
  EXPECT_TRUE(run("stopped").finished);
  EXPECT_EQ(left_by("stopped"), left_by("whole"));
  EXPECT_FALSE(run("stopped").finished);
  EXPECT_THAT(said_, HasSubstr("nothing to do: the run already finished at step 30"));
}

TEST_F(StoppedEvaluation, PatienceCanEndTheRunInTheNextProcess) {
  options_.epochs = 50;
  options_.patience = 1;
  options_.optimizer.learning_rate = 3;  // so that an evaluation is soon worse than one before
  const auto whole = run("whole");
  ASSERT_TRUE(whole.stopped_early);
  const auto evaluations = static_cast<int>(whole.step / kStepsOfAnEpoch);
  run("stopped", (evaluations - 1) * kBatches + 1);
  EXPECT_TRUE(run("stopped").stopped_early);
  EXPECT_EQ(left_by("stopped"), left_by("whole"));
}

}  // namespace
}  // namespace ddp::train
