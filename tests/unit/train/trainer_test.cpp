// SPDX-License-Identifier: Apache-2.0
// Tests the whole training loop on the handwritten digits, with ranks as threads.
#include "ddp_runtime/train/trainer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/train/ranks/step_boundary.h"
#include "ddp_runtime/train/state/training_state.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Training : public testing::Test {
 protected:
  void SetUp() override {
    torch::set_num_threads(1);
    data_ = data::open_data("digits");
  }

  TrainOptions options(int ranks) const {
    TrainOptions o;
    o.epochs = 2;
    o.batch = 64 / ranks;
    return o;
  }

  // Returns rank 0's result. Rethrows an exception of any rank.
  template <class Change = NoChange>
  RunResult run(int ranks, const TrainOptions& o, const std::string& model_name = "mlp",
                const Change& change = {}) {
    const auto make = [&] { return models::make_model({model_name, {1, 8, 8}, 10, 0, 0}); };
    return train_ranks(ranks, o, data_, make, change)[0].result;
  }

  static nlohmann::json json_in(const fs::path& file) {
    return nlohmann::json::parse(std::ifstream(file));
  }

  test::TemporaryDirectory temporary_;
  fs::path dir_ = temporary_.path();
  data::DataPair data_;
};

TEST_F(Training, LearnsDigits) {
  auto o = options(2);
  o.epochs = 30;
  EXPECT_GT(run(2, o, "mnist-cnn").evaluation.accuracy, 0.97);
}

TEST_F(Training, TwoRanksEqualTwoAccumulatedMicroBatchesBitwise) {
  auto alone = options(1);
  alone.batch = 32;
  alone.micro_batches = 2;
  EXPECT_EQ(run(2, options(2)).parameters_crc32c, run(1, alone).parameters_crc32c);
}

TEST_F(Training, LossCurveDoesNotDependOnTheNumberOfRanks) {
  const auto curve = [&](int ranks) {
    auto o = options(ranks);
    o.report_directory = dir_ / std::to_string(ranks);
    run(ranks, o);
    std::ifstream csv(o.report_directory / "steps.csv");
    std::string line;
    std::getline(csv, line);
    std::vector<double> losses;
    while (std::getline(csv, line)) {
      losses.push_back(std::stod(line.substr(line.find(',', line.find(',') + 1) + 1)));
    }
    return losses;
  };
  const auto one = curve(1);
  ASSERT_EQ(one.size(), 50U);
  for (const int ranks : {2, 4}) {
    const auto many = curve(ranks);
    ASSERT_EQ(many.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-4) << i;
  }
}

TEST_F(Training, InterruptedRunEndsBitwiseTheSame) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    auto o = options(2);
    o.optimizer.name = optimizer;
    o.optimizer.learning_rate = 0.01;
    const auto whole = run(2, o);
    o.checkpoint.directory = dir_ / optimizer;
    o.steps = 13;  // in the middle of the first epoch
    EXPECT_EQ(run(2, o).step, 13);
    o.steps = 25;  // at the end of the first epoch
    EXPECT_EQ(run(2, o).step, 25);
    o.steps = 0;
    const auto resumed = run(2, o);
    EXPECT_EQ(resumed.step, whole.step);
    EXPECT_EQ(resumed.parameters_crc32c, whole.parameters_crc32c) << optimizer;
    EXPECT_DOUBLE_EQ(resumed.train_loss, whole.train_loss);
  }
}

// The signal is in the last step of the run, whose evaluation the process leaves to the next one.
TEST_F(Training, AStopInTheLastStepLeavesTheEndOfTheEpochToTheNextProcess) {
  auto o = options(1);
  o.checkpoint.directory = dir_ / "ck";
  o.checkpoint.keep_best = true;
  std::vector<std::int64_t> epochs;
  double loss = 0;
  const auto run_once = [&] {
    const auto result = run(1, o, "mlp", [&](auto& rank) {
      rank.task.callbacks.after_step = [](const StepEvent& event) {
        if (event.step == 49) raise(SIGUSR2);
      };
      rank.task.callbacks.after_epoch = [&](const EpochEvent& event) {
        epochs.push_back(event.epoch);
        loss = event.train_loss;
        return Next::go_on;
      };
    });
    StopSignals::forget();
    return result;
  };
  EXPECT_EQ(run_once().interrupted, "SIGUSR2 was received");
  EXPECT_EQ(epochs, std::vector<std::int64_t>{0});
  const auto ended = run_once();
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{0, 1}));
  EXPECT_GT(loss, 0);
  EXPECT_TRUE(fs::exists(ended.best_checkpoint / "manifest.json"));
  EXPECT_EQ(ended.step, 50);
}

TEST_F(Training, TheScheduleOfAResumedRunDoesNotJumpWithTheNumberOfRanks) {
  std::vector<double> rates;
  std::int64_t warmup = 0;
  const auto train = [&](int ranks, std::int64_t stop_after, const std::string& name) {
    TrainOptions o;
    o.epochs = 4;
    o.batch = 32;  // per rank: 50 steps an epoch alone, 25 with two ranks
    o.schedule = Schedule::cosine;
    o.warmup_steps = warmup;
    o.checkpoint.directory = dir_ / name;
    run(ranks, o, "mlp", [&](auto& rank) {
      if (rank.group.rank() != 0) return;
      rank.task.callbacks.after_step = [&](const StepEvent& event) {
        rates.push_back(event.learning_rate);
        if (event.step == stop_after) raise(SIGUSR2);
      };
    });
    StopSignals::forget();
  };
  // The last one is not over when the number of ranks changes.
  for (const std::int64_t its_warmup : {0, 30, 120}) {
    warmup = its_warmup;
    train(1, 0, fmt::format("alone-{}", warmup));
    const auto alone = std::exchange(rates, {});
    ASSERT_EQ(alone.size(), 200U);
    const auto name = fmt::format("ck-{}", warmup);
    train(1, 99, name);
    const auto before = std::exchange(rates, {});
    train(2, 129, name);
    ASSERT_EQ(rates.size(), 130 - before.size());
    for (std::size_t i = 0; i < rates.size(); ++i) {
      EXPECT_NEAR(rates[i], alone[before.size() + 2 * i], 1e-9) << warmup << " " << i;
    }
    const auto seen = before.size() + 2 * rates.size();
    rates.clear();
    train(1, 0, name);  // as at first
    ASSERT_EQ(seen + rates.size(), 200U);
    for (std::size_t i = 0; i < rates.size(); ++i) {
      EXPECT_NEAR(rates[i], alone[seen + i], 1e-9) << warmup << " " << i;
    }
    rates.clear();
  }
}

// The layers are registered in a different order than they are used in, so that the buckets of the
// first step differ from those of later steps. The test uses more than two ranks, each on its own
// node, and buckets large enough for a ring, because then an element's position in its bucket
// determines the order of its additions.
struct BackwardsImpl : torch::nn::Module {
  BackwardsImpl() {
    register_module("last", last);
    register_module("middle", middle);
    register_module("first", first);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(torch::tanh(middle(torch::tanh(first(x.flatten(1))))));
  }
  torch::nn::Linear first{64, 200};
  torch::nn::Linear middle{200, 200};
  torch::nn::Linear last{200, 10};
};

TEST_F(Training, InterruptedRunOfThreeRanksEndsBitwiseTheSameDespiteRebuiltBuckets) {
  const auto train = [&](const TrainOptions& o) {
    const auto make = [] { return std::make_shared<BackwardsImpl>(); };
    const auto node_of = [](int rank) { return rank; };
    return train_ranks(3, o, data_, make, {}, node_of)[0].result.parameters_crc32c;
  };
  auto o = options(3);
  o.epochs = 1;
  o.parallel.buckets = {64, 50'000};
  const auto whole = train(o);
  for (const int interrupted_after : {1, 7}) {
    o.checkpoint.directory = dir_ / std::to_string(interrupted_after);
    o.steps = interrupted_after;
    train(o);
    o.steps = 0;
    EXPECT_EQ(train(o), whole) << interrupted_after;
  }
}

TEST_F(Training, DamagedCheckpointIsSkipped) {
  auto o = options(1);
  o.checkpoint.directory = dir_ / "ckpt";
  o.epochs = 3;
  const auto whole = run(1, o);
  const auto file = whole.checkpoint / "model.h5";
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(20000).put('\x55');
  const auto resumed = run(1, o);
  EXPECT_EQ(resumed.step, whole.step);
  EXPECT_EQ(resumed.parameters_crc32c, whole.parameters_crc32c)
      << "resumed from the previous epoch and repeated the last one";
}

TEST_F(Training, CheckpointLoadsOnADifferentNumberOfRanks) {
  auto o = options(4);
  const auto whole = run(4, o);
  o.checkpoint.directory = dir_ / "ckpt";
  o.steps = 13;
  run(4, o);
  o = options(2);
  o.checkpoint.directory = dir_ / "ckpt";
  const auto resumed = run(2, o);
  EXPECT_EQ(resumed.step, whole.step);
  EXPECT_NEAR(resumed.evaluation.loss, whole.evaluation.loss, 1e-4);
}

TEST_F(Training, KeepsOnlyTheLastCheckpoints) {
  auto o = options(1);
  o.epochs = 4;
  o.checkpoint.directory = dir_ / "ckpt";
  o.checkpoint.keep_last = 2;
  run(1, o);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(o.checkpoint.directory)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("step-00000075", "step-00000100"));
}

TEST_F(Training, CheckpointOfAnotherModelIsRefusedAndUnchanged) {
  auto o = options(1);
  o.checkpoint.directory = dir_ / "ckpt";
  run(1, o);
  const auto contents = [&] {
    std::map<std::string, fs::file_time_type> files;
    for (const auto& entry : fs::recursive_directory_iterator(o.checkpoint.directory)) {
      files[entry.path()] = entry.is_directory() ? fs::file_time_type() : entry.last_write_time();
    }
    return files;
  };
  const auto before = contents();
  const auto text = error_of([&] { run(2, o, "mnist-cnn"); });
  EXPECT_THAT(text, HasSubstr("resume with the model it was saved from"));
  EXPECT_EQ(contents(), before);
}

TEST_F(Training, NewRunDoesNotMixWithAnOldOne) {
  auto o = options(1);
  o.checkpoint.directory = dir_ / "ckpt";
  run(1, o);
  o.checkpoint.resume = "never";
  EXPECT_THAT(error_of([&] { run(1, o); }), HasSubstr("already holds checkpoints"));
}

TEST_F(Training, EvaluatesOnlyWhatWasSaved) {
  auto o = options(2);
  o.checkpoint.directory = dir_ / "ckpt";
  const auto trained = run(2, o);
  o.evaluate_only = true;
  EXPECT_THAT(error_of([&] { run(2, o); }), HasSubstr("leave checkpoint.directory empty"));
  o.checkpoint.directory.clear();
  EXPECT_THAT(error_of([&] { run(2, o); }), HasSubstr("there are no weights to evaluate"));
  o.checkpoint.resume = trained.checkpoint;
  std::string said;
  const auto result = run(2, o, "mlp", [&](auto& rank) {
    if (rank.group.rank() == 0) rank.task.log = [&](const auto& line) { said += line + "\n"; };
  });
  EXPECT_EQ(result.taken, 0);
  EXPECT_EQ(result.parameters_crc32c, trained.parameters_crc32c);
  EXPECT_DOUBLE_EQ(result.evaluation.loss, trained.evaluation.loss);
  EXPECT_THAT(said, HasSubstr("evaluated step 50: eval loss "));
}

TEST_F(Training, ARunWithoutADirectoryNamesNoCheckpointOfItsOwn) {
  auto o = options(1);
  o.checkpoint.directory = dir_ / "ckpt";
  o.checkpoint.resume = run(1, o).checkpoint;
  o.checkpoint.directory.clear();
  o.epochs = 3;
  const auto result = run(1, o);
  EXPECT_EQ(result.step, 75);
  EXPECT_EQ(result.checkpoint, "") << "nothing of it was saved";
}

TEST_F(Training, APathAmongCheckpointsIsNotANewRun) {
  auto o = options(1);
  o.checkpoint.directory = dir_ / "ckpt";
  const auto first = run(1, o).checkpoint;
  const auto error_in = [&](const fs::path& directory) {
    o.checkpoint.directory = directory;
    return error_of([&] { run(1, o); });
  };
  const auto resume_there = HasSubstr("use --checkpoint-dir " + (dir_ / "ckpt").string());
  EXPECT_THAT(error_in(first), AllOf(HasSubstr("is itself a checkpoint"), resume_there));
  EXPECT_THAT(error_in(first / ""), HasSubstr("is itself a checkpoint"));
  EXPECT_THAT(error_in(dir_ / "ckpt/step-00000026"),
              AllOf(HasSubstr("is among the checkpoints of"), resume_there));
  EXPECT_FALSE(fs::exists(dir_ / "ckpt/step-00000026"));
  std::string said;
  const auto listen = [&](auto& rank) { rank.task.log = [&](const auto& line) { said += line; }; };
  o.checkpoint.directory = dir_ / "ckpts";
  run(1, o, "mlp", listen);
  EXPECT_THAT(said, HasSubstr("ckpts holds no checkpoint: training starts from the beginning"));
  said.clear();
  run(1, o, "mlp", listen);
  EXPECT_THAT(said, Not(HasSubstr("holds no checkpoint")));
}

TEST_F(Training, AResumedRunSaysThatItsRanksChangeTheRate) {
  auto o = options(1);
  o.checkpoint.directory = dir_ / "run";
  o.scale_learning_rate = true;
  o.steps = 2;
  run(1, o);
  o.steps = 3;
  std::string said;
  run(2, o, "mlp", [&](auto& rank) {
    if (rank.group.rank() == 0) rank.task.log = [&](const auto& line) { said += line + "\n"; };
  });
  EXPECT_THAT(said, HasSubstr("learning_rate_factor was 1 in the saved run and is 2 now\n"));
}

TEST_F(Training, UnwritableDirectoriesAreFoundBeforeTraining) {
  auto o = options(2);
  o.checkpoint.directory = "/proc/nowhere";
  EXPECT_THAT(error_of([&] { run(2, o); }),
              HasSubstr("cannot create the checkpoint directory /proc/nowhere"));
  o.checkpoint.directory.clear();
  o.report_directory = "/proc/nowhere";
  EXPECT_THAT(error_of([&] { run(2, o); }),
              HasSubstr("cannot create the report directory /proc/nowhere"));
  o.report_directory = "/proc";
  EXPECT_THAT(error_of([&] { run(2, o); }),
              HasSubstr("cannot write to the report directory /proc: "));
}

// A run removes and replaces what has the name of a checkpoint; elsewhere beside its checkpoints it
// removes nothing.
TEST_F(Training, AReportIsNotWhereCheckpointsAreRemoved) {
  auto o = options(1);
  o.steps = 1;
  o.checkpoint.directory = dir_ / "run";
  const auto newest = run(1, o).checkpoint;
  for (const auto& [place, why] : std::map<fs::path, std::string>{
           {newest, "is in the checkpoint " + newest.string()},
           {newest / "report", "is in the checkpoint " + newest.string()},
           {dir_ / "run/step-00000009/report", "has the name of a checkpoint"},
           {dir_ / "run/best", "has the name of a checkpoint"},
           {dir_ / "other/best", "has the name of a checkpoint"}}) {
    o.report_directory = place;
    EXPECT_THAT(error_of([&] { run(1, o); }),
                AllOf(HasSubstr("--report-dir " + place.string() + " " + why),
                      HasSubstr("choose a directory elsewhere")));
  }
  const auto here = fs::current_path();
  fs::current_path(dir_ / "run");
  o.report_directory = "best/report";
  EXPECT_THAT(error_of([&] { run(1, o); }), HasSubstr("--report-dir best/report has the name of"));
  fs::current_path(here);
  for (const auto* place : {"run", "run/report"}) {
    o.report_directory = dir_ / place;
    o.steps += 1;
    EXPECT_TRUE(run(1, o).finished) << place;
  }
}

TEST_F(Training, BatchLargerThanTheDataIsRefused) {
  auto o = options(2);
  o.batch = 1000;
  EXPECT_THAT(error_of([&] { run(2, o); }), HasSubstr("larger than the 1618 training samples"));
}

TEST_F(Training, Bfloat16ReachesNearlyTheSameLoss) {
  auto o = options(2);
  o.epochs = 6;
  const auto full = run(2, o);
  o.precision = amp::Precision::bf16;
  const auto half = run(2, o);
  EXPECT_NE(half.parameters_crc32c, full.parameters_crc32c);
  EXPECT_NEAR(half.evaluation.loss, full.evaluation.loss, 0.1);
}

TEST_F(Training, StepsAloneRunOverAsManyEpochsAsNeeded) {
  auto o = options(2);
  o.epochs = 0;
  o.steps = 60;  // an epoch has 25
  o.report_directory = dir_ / "report";
  const auto whole = run(2, o);
  EXPECT_EQ(whole.step, 60);
  EXPECT_EQ(whole.planned_steps, 60);
  EXPECT_EQ(nlohmann::json::parse(whole.report).at("epochs"), 3);
  o.checkpoint.directory = dir_ / "checkpoints";
  // At the end of an epoch, within an epoch, and at the end of the run.
  for (const int steps : {25, 40, 60}) {
    o.steps = steps;
    EXPECT_EQ(run(2, o).step, steps);
  }
  o.steps = 85;
  const auto resumed = run(2, o);
  o.checkpoint.directory.clear();
  EXPECT_EQ(resumed.parameters_crc32c, run(2, o).parameters_crc32c);
  o.epochs = 2;
  EXPECT_EQ(run(2, o).step, 50) << "the first limit must stop the run";
  o.epochs = 0;
  o.steps = 0;
  EXPECT_EQ(run(2, o).step, 25) << "one epoch by default";
}

// ddp-report sweep compares them.
TEST_F(Training, ReportRecordsTheSettings) {
  auto o = options(2);
  o.steps = 2;
  o.micro_batches = 2;
  o.precision = amp::Precision::bf16;
  o.optimizer.name = "adamw";
  o.report_directory = dir_ / "report";
  const auto settings = nlohmann::json::parse(run(2, o).report).at("settings");
  EXPECT_EQ(settings.at("precision"), "bf16");
  EXPECT_EQ(settings.at("optimizer"), "adamw");
  EXPECT_EQ(settings.at("accumulate"), 2);
  EXPECT_EQ(settings.at("comm_hook"), "off");
  EXPECT_EQ(settings.at("staleness"), "off");
}

TEST_F(Training, WithoutEvaluationDataThereIsNoEvaluation) {
  data_.evaluation = nullptr;
  auto o = options(2);
  o.checkpoint.directory = dir_ / "checkpoints";
  const auto result = run(2, o);
  EXPECT_EQ(result.step, 50);
  EXPECT_EQ(result.evaluation.targets, 0);
  EXPECT_TRUE(nlohmann::json::parse(result.report).at("final").at("eval_loss").is_null());
  EXPECT_TRUE(nlohmann::json::parse(result.report).at("final").at("eval_accuracy").is_null());
  EXPECT_TRUE(fs::exists(result.checkpoint));
  o.epochs = 3;
  EXPECT_EQ(run(2, o).step, 75);
  o.patience = 2;
  EXPECT_THAT(error_of([&] { run(2, o); }), HasSubstr("patience needs evaluations"));
  o.patience = 0;
  o.checkpoint.keep_best = true;
  EXPECT_THAT(error_of([&] { run(2, o); }), HasSubstr("leave out keep_best"));
}

// A process that finds nothing to do must not overwrite the report of the run that trained.
TEST_F(Training, FinishedRunStartedAgainReportsThatAndKeepsItsReport) {
  auto o = options(2);
  o.checkpoint.directory = dir_ / "checkpoints";
  o.report_directory = dir_ / "report";
  const auto first = run(2, o);
  EXPECT_EQ(first.taken, 50);
  const auto report = test::text_of(o.report_directory / "run.json");
  const auto steps = test::text_of(o.report_directory / "steps.csv");
  ASSERT_FALSE(report.empty());
  testing::internal::CaptureStdout();
  const auto again = run(2, o, "mlp", [](auto& rank) { rank.task.log = {}; });
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("nothing to do: the run already finished at step 50; more epochs or steps "
                        "would continue it: eval loss 0."));
  EXPECT_EQ(again.taken, 0);
  EXPECT_EQ(again.step, 50);
  EXPECT_EQ(again.parameters_crc32c, first.parameters_crc32c);
  EXPECT_DOUBLE_EQ(again.evaluation.loss, first.evaluation.loss);
  EXPECT_TRUE(again.report.empty());
  EXPECT_TRUE(again.report_file.empty());
  EXPECT_EQ(test::text_of(o.report_directory / "run.json"), report);
  EXPECT_EQ(test::text_of(o.report_directory / "steps.csv"), steps);
}

// Every process that is killed after a save leaves a report that reaches as far, so that one with
// nothing left to train can complete it.
TEST_F(Training, AProcessThatIsKilledAfterItsLastSaveLeavesAReport) {
  for (const std::int64_t steps : {50, 30}) {  // at the end of an epoch, and within one
    auto o = options(2);
    o.steps = steps;
    o.checkpoint.every_steps = 10;
    const auto at = dir_ / std::to_string(steps);
    o.checkpoint.directory = at / "checkpoints";
    o.report_directory = at / "report";
    const auto killed = [&](const SaveEvent& save) {
      if (save.step != steps || save.directory.empty() || fs::exists(dir_ / "killed")) return;
      fs::copy(at, dir_ / "killed", fs::copy_options::recursive);
      fs::remove(dir_ / "killed/checkpoints/.owner");  // which lives
    };
    const auto whole =
        run(2, o, "mlp", [&](auto& rank) { rank.task.callbacks.after_save = killed; });
    o.checkpoint.directory = dir_ / "killed/checkpoints";
    o.report_directory = dir_ / "killed/report";
    EXPECT_EQ(json_in(o.report_directory / "run.json").at("outcome"), "running");
    const auto ended = run(2, o);
    EXPECT_EQ(ended.taken, 0);
    const auto report = json_in(o.report_directory / "run.json");
    const auto expected = json_in(at / "report/run.json");
    for (const char* key : {"outcome", "steps", "covers", "final", "parameters_crc32c"}) {
      EXPECT_EQ(report.at(key), expected.at(key)) << key << " of " << steps;
    }
    fs::remove_all(dir_ / "killed");
  }
}

// The next job of a chain looks for its checkpoint in the directory of this one.
TEST_F(Training, FinishedRunIsSavedInTheDirectoryOfTheRunThatStartsFromIt) {
  auto o = options(2);
  o.checkpoint.directory = dir_ / "first";
  const auto first = run(2, o);
  o.checkpoint.resume = first.checkpoint.string();
  o.checkpoint.directory = dir_ / "second";
  const auto second = run(2, o);
  EXPECT_EQ(second.taken, 0);
  EXPECT_EQ(second.checkpoint, o.checkpoint.directory / first.checkpoint.filename());
  EXPECT_EQ(second.parameters_crc32c, first.parameters_crc32c);
  const auto manifest = test::text_of(second.checkpoint / "manifest.json");
  ASSERT_FALSE(manifest.empty());
  const auto again = run(2, o);
  EXPECT_EQ(again.checkpoint, second.checkpoint);
  EXPECT_EQ(test::text_of(second.checkpoint / "manifest.json"), manifest) << "saved once";
  o.epochs = 3;
  const auto longer = run(2, o);
  EXPECT_EQ(longer.taken, 25);
  o.checkpoint.directory = dir_ / "third";
  EXPECT_EQ(longer.parameters_crc32c, run(2, o).parameters_crc32c);
}

// An autoencoder: its output is compared with its input, and there are no classes.
TEST_F(Training, MinimizesACustomLoss) {
  const auto inputs = torch::arange(64 * 6, torch::kFloat32).view({64, 6}).sin();
  const auto samples = std::make_shared<data::TensorDataset>(inputs, torch::arange(64), 0);
  const auto make = [] {
    torch::nn::Linear net(6, 6);
    const torch::NoGradGuard no_grad;
    net->weight.fill_(0.1);
    net->bias.zero_();
    return net;
  };
  const auto train = [&](int ranks, int steps, const LossFunction& loss) {
    TrainOptions o;
    o.batch = 16 / ranks;
    o.steps = steps;
    const auto change = [&](auto& rank) {
      rank.task.forward = [&net = rank.model](const torch::Tensor& x) {
        return (net(x) - x).pow(2);
      };
      rank.task.loss = loss;
    };
    return train_ranks(ranks, o, {"waves", samples, samples}, make, change)[0].result;
  };
  const LossFunction mean = [](const torch::Tensor& outputs, const torch::Tensor&) {
    return outputs.mean();
  };
  const auto early = train(1, 1, mean);
  const auto late = train(1, 40, mean);
  EXPECT_LT(late.evaluation.loss, 0.5 * early.evaluation.loss);
  EXPECT_EQ(late.evaluation.targets, 64);
  EXPECT_TRUE(nlohmann::json::parse(late.report).at("final").at("eval_accuracy").dump() == "null");
  EXPECT_NEAR(train(2, 40, mean).evaluation.loss, late.evaluation.loss, 1e-5);
  EXPECT_THAT(
      error_of([&] {
        train(2, 1, [](const torch::Tensor& outputs, const torch::Tensor&) { return outputs; });
      }),
      HasSubstr(
          "the loss must be one number, the mean over the batch, not a tensor of shape [8, 6]"));
}

TEST_F(Training, RefusesParametersThatEachRankKeeps) {
  auto o = options(2);
  o.parallel.ignore = {"fc1.*"};
  EXPECT_THAT(error_of([&] { run(2, o); }), HasSubstr("the trainer cannot leave 'fc1.*' to each"));
}

// A checkpoint's arrays come from several ranks, so the ranks must agree.
TEST(TrainingState, IsNotCollectedFromRanksThatDiffer) {
  const auto error = error_of([] {
    test::run_ranks(2, [](comm::Group& group) {
      auto layer = test::on_test_device(torch::nn::Linear(2, 2));
      DistributedDataParallel replica(*layer, group);
      torch::optim::SGD optimizer(layer->parameters(), 0.1);
      const UserState user;
      TrainingState state(group, *layer, optimizer, &replica, user);
      EXPECT_FALSE(state.collect().empty());
      const torch::NoGradGuard no_grad;
      if (group.rank() == 1) layer->bias.add_(1);
      state.collect();
    });
  });
  EXPECT_THAT(error, HasSubstr("rank 1 (first in 'bias') differs from rank 0;"));
}

// Only one rank's values of what differs between ranks can be saved.
TEST(TrainingState, HasIgnoredParametersAndTheirOptimizerStateFromRankZero) {
  test::run_ranks(2, [](comm::Group& group) {
    auto layer = test::on_test_device(torch::nn::Linear(2, 2));
    DataParallelOptions options;
    options.ignore = {"bias"};
    DistributedDataParallel replica(*layer, group, options);
    torch::optim::SGD optimizer(layer->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    auto step = replica.begin_step();
    step.backward(layer->forward(test::on_test_device(torch::ones({1, 2}))).sum());
    step.apply(optimizer);
    const torch::NoGradGuard no_grad;
    if (group.rank() == 1) layer->bias.add_(1);
    const UserState user;
    TrainingState state(group, *layer, optimizer, &replica, user);
    std::vector<std::string> from_rank_zero;
    for (const auto& array : state.collect()) {
      if (!state.is_replicated(array.name)) from_rank_zero.push_back(array.name);
    }
    EXPECT_THAT(from_rank_zero,
                testing::IsSupersetOf({"model/bias", "optim/bias/momentum_buffer"}));
    EXPECT_THAT(from_rank_zero, testing::Not(testing::Contains("model/weight")));
    EXPECT_THAT(from_rank_zero, testing::Not(testing::Contains("optim/weight/momentum_buffer")));
  });
}

}  // namespace
}  // namespace ddp::train
