// SPDX-License-Identifier: Apache-2.0
// The training loop on the fake device, where it differs from that on CPUs: waits of the host,
// results that are known late, state on the host, reports. Most tests of the loop run on both.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "ddp_runtime/comm/p2p/run_ranks.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/train/objective/evaluation.h"
#include "ddp_runtime/train/options/shard_mode.h"
#include "ddp_runtime/train/trainer.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/error_of.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::fake_device {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kRanks = 2;
constexpr std::int64_t kSteps = 12;

// The loss function of a rank.
using LossOf = std::function<train::LossFunction(int rank)>;

class TrainerOnTheDevice : public FakeDeviceTest {
 protected:
  static train::TrainOptions options(const std::string& optimizer) {
    train::TrainOptions o;
    o.steps = kSteps;
    o.batch = 16;
    o.optimizer.name = optimizer;
    o.optimizer.learning_rate = optimizer == "sgd" ? 0.05 : 0.002;
    o.clip_norm = 1;
    return o;
  }

  // Called at the beginning of each forward pass.
  using Watch = std::function<void(comm::Group&)>;

  train::RunResult fit(comm::Group& group, const torch::Device& where, const train::TrainOptions& o,
                       const Watch& watch = {}, const train::LossFunction& loss = {}) {
    std::shared_ptr<models::Model> model;
    {
      const std::lock_guard lock(seeding_);  // threads share one generator
      torch::manual_seed(1);
      model = models::make_model({"mlp", {1, 8, 8}, 10, width_, 0});
      if (!where.is_cpu()) move_to(*model, where);
    }
    auto with_units = o;
    if (o.shard == Shard::parameters || o.shard == Shard::hybrid) with_units.units = model->units();
    train::Trainer trainer(group,
                           {"test",
                            "test",
                            "mlp",
                            *model,
                            [&](const torch::Tensor& x) {
                              if (watch) watch(group);
                              return model->forward(x);
                            },
                            data_,
                            {},
                            loss},
                           with_units);
    const auto result = trainer.fit();
    if (group.rank() == 0 && with_units.units.empty()) {
      parameters_.clear();
      for (const auto& p : model->parameters()) parameters_.push_back(p.detach().cpu().clone());
    }
    return result;
  }

  train::RunResult on_cpus(const train::TrainOptions& o, const LossOf& loss = {}) {
    train::RunResult result;
    comm::run_ranks(kRanks, [&](comm::Group& group) {
      const auto mine =
          fit(group, torch::kCPU, o, {}, loss ? loss(group.rank()) : train::LossFunction());
      if (group.rank() == 0) result = mine;
    });
    return result;
  }

  // Each rank's error.
  std::vector<std::string> errors_on_devices(const train::TrainOptions& o,
                                             const Watch& watch = {}) {
    return comm::test::run_gpu_ranks(
        kRanks, [&](const comm::test::GpuRank& r) { fit(r.group, device(r.rank), o, watch); });
  }

  train::RunResult on_devices(const train::TrainOptions& o, const LossOf& loss = {},
                              const Watch& watch = {}) {
    train::RunResult result;
    comm::test::run_on_gpus(kRanks, [&](const comm::test::GpuRank& r) {
      const auto mine =
          fit(r.group, device(r.rank), o, watch, loss ? loss(r.rank) : train::LossFunction());
      if (r.rank == 0) result = mine;
    });
    return result;
  }

  std::int64_t width_ = 0;  // of the model; 0: the usual one
  test::TemporaryDirectory temporary_;
  data::DataPair data_ = data::open_data("digits");
  std::mutex seeding_;
  std::vector<torch::Tensor> parameters_;  // of rank 0 after the last run
};

// Cross entropy, except in some steps, numbered from 1: `overflow` has gradients of rank 0 that
// overflow, and `nan` is NaN on rank 1.
LossOf spoiled(const std::set<int>& overflow, const std::set<int>& nan) {
  return [=](int rank) {
    return [=, call = 0](const torch::Tensor& scores, const torch::Tensor& targets) mutable {
      if (scores.requires_grad()) ++call;  // not in an evaluation
      if (scores.requires_grad() && rank == 0 && overflow.contains(call)) {
        scores.register_hook([](const torch::Tensor& g) { return g * 1e38 * 1e10; });
      }
      const auto loss = torch::nn::functional::cross_entropy(scores, targets);
      return scores.requires_grad() && rank == 1 && nan.contains(call) ? loss * NAN : loss;
    };
  };
}

std::vector<std::string> skips_in(const std::string& output) {
  std::vector<std::string> lines;
  std::stringstream text(output);
  for (std::string line; std::getline(text, line);) {
    if (line.find("update skipped") != std::string::npos) lines.push_back(line);
  }
  return lines;
}

template <class Run>
std::vector<std::string> skips_of(const Run& run) {
  testing::internal::CaptureStdout();
  try {
    run();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  return skips_in(testing::internal::GetCapturedStdout());
}

nlohmann::json position_in(const fs::path& checkpoint) {
  return nlohmann::json::parse(std::ifstream(checkpoint / "manifest.json"))
      .at("state")
      .at("position");
}

TEST_F(TrainerOnTheDevice, EndsWithTheBitsOfCpus) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const auto expected = on_cpus(options(optimizer));
    const auto result = on_devices(options(optimizer));
    EXPECT_EQ(result.parameters_crc32c, expected.parameters_crc32c) << optimizer;
    EXPECT_EQ(result.evaluation.accuracy, expected.evaluation.accuracy) << optimizer;
  }
}

// A checkpoint does not depend on the kind of device.
TEST_F(TrainerOnTheDevice, ResumesWhatEitherKindOfDeviceHasSaved) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const auto expected = on_cpus(options(optimizer)).parameters_crc32c;
    for (const bool begins_on_device : {false, true}) {
      for (const bool ends_on_device : {false, true}) {
        if (!begins_on_device && !ends_on_device) continue;
        auto o = options(optimizer);
        o.checkpoint.directory = temporary_.path() / (optimizer + std::to_string(begins_on_device) +
                                                      std::to_string(ends_on_device));
        o.steps = kSteps / 2;
        o.checkpoint.every_steps = kSteps / 2;
        begins_on_device ? on_devices(o) : on_cpus(o);
        o.steps = kSteps;
        const auto result = ends_on_device ? on_devices(o) : on_cpus(o);
        EXPECT_EQ(result.taken, kSteps / 2);
        EXPECT_EQ(result.parameters_crc32c, expected)
            << optimizer << ", device first " << begins_on_device << ", device last "
            << ends_on_device;
      }
    }
  }
}

// From the fourth step to the last, with the default checks.
TEST_F(TrainerOnTheDevice, StepMakesNoHostWait) {
  data_.evaluation = nullptr;
  struct Case {
    const char* optimizer;
    bool scaled;
    bool skips;
    double clip_norm = 1;
    Shard shard = Shard::none;
  };
  for (const auto& c :
       {Case{"sgd", false, false}, Case{"adamw", false, false}, Case{"sgd", true, false},
        Case{"adamw", true, true}, Case{"sgd", false, true}, Case{"adamw", false, false, 0},
        Case{"sgd", true, true, 1, Shard::optimizer},
        Case{"adamw", true, true, 0, Shard::gradients},
        Case{"adamw", false, true, 0, Shard::parameters},
        Case{"sgd", true, false, 0, Shard::hybrid}}) {
    auto o = options(c.optimizer);
    o.clip_norm = c.clip_norm;
    o.shard = c.shard;
    if (c.scaled) o.loss_scale = 1024;
    if (c.skips) o.on_nan = train::OnNan::skip;
    std::array<int, kRanks> calls{};
    const auto watch = [&](comm::Group& group) {
      const int call = ++calls.at(static_cast<std::size_t>(group.rank()));
      if (call != 4 && call != kSteps) return;
      group.barrier("all ranks are here").wait_host();
      if (group.rank() == 0 && call == 4) forget_host_waits();
      if (group.rank() == 0 && call == kSteps) {
        EXPECT_EQ(host_wait_names(), std::vector<std::string>()) << c.optimizer;
      }
      group.barrier("counted").wait_host();
    };
    const bool overflows = c.scaled || c.skips;
    const auto skipped =
        skips_of([&] { on_devices(o, overflows ? spoiled({6}, {}) : LossOf(), watch); });
    EXPECT_EQ(skipped.size(), overflows ? 1U : 0U) << c.optimizer;
    EXPECT_EQ(calls[0], kSteps);
  }
}

// Large enough that each of two ranks has state on the host. The second half is resumed.
TEST_F(TrainerOnTheDevice, KeepsTheStateOnTheHost) {
  width_ = 256;
  for (const char* optimizer : {"sgd", "adamw"}) {
    auto o = options(optimizer);
    o.clip_norm = 0;
    const auto expected = on_devices(o).parameters_crc32c;
    o.offload_to_host = true;
    for (const auto shard : {Shard::none, Shard::optimizer, Shard::parameters, Shard::hybrid}) {
      o.shard = shard;
      o.checkpoint.directory =
          temporary_.path() / (optimizer + std::to_string(static_cast<int>(shard)));
      o.steps = kSteps / 2;
      on_devices(o);
      o.steps = kSteps;
      const auto result = on_devices(o);
      EXPECT_EQ(result.taken, kSteps / 2);
      EXPECT_EQ(result.parameters_crc32c, expected) << o.checkpoint.directory;
    }
  }
}

TEST_F(TrainerOnTheDevice, RefusesPlacesThatItsStateCannotHave) {
  auto o = options("adamw");
  o.offload_to_host = true;
  EXPECT_THAT(error_of([&] { on_cpus(o); }), HasSubstr("offload_to_host is for GPUs"));
  o.offload_to_host = false;
  o.offload_directory = temporary_.path();
  EXPECT_THAT(errors_on_devices(o), Each(HasSubstr("offload_directory is for CPUs")));
}

// The last step before a checkpoint is skipped, so its result must be read before.
TEST_F(TrainerOnTheDevice, CheckpointsSaveTheStateAfterASkippedStep) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const auto shard : {Shard::none, Shard::optimizer, Shard::parameters, Shard::hybrid}) {
      auto o = options(optimizer);
      o.clip_norm = 0;
      o.loss_scale = 1024;
      o.shard = shard;
      o.checkpoint.directory = temporary_.path() / (optimizer + train::shard_mode_name(shard));
      o.checkpoint.every_steps = 4;
      o.checkpoint.keep_last = 10;
      const auto expected = on_devices(o, spoiled({1, 4, 7}, {})).parameters_crc32c;
      const auto fourth = position_in(o.checkpoint.directory / "step-00000004");
      const auto eighth = position_in(o.checkpoint.directory / "step-00000008");
      EXPECT_EQ(fourth.at("loss_scale"), 256);
      EXPECT_EQ(fourth.at("updates_since_scale_change"), 0);
      EXPECT_EQ(eighth.at("loss_scale"), 128);
      EXPECT_EQ(eighth.at("updates_since_scale_change"), 1);
      fs::remove_all(o.checkpoint.directory / "step-00000008");
      fs::remove_all(o.checkpoint.directory / "step-00000012");
      const auto resumed = on_devices(o, spoiled({3}, {}));  // step 7 of the run
      EXPECT_EQ(resumed.taken, kSteps - 4);
      EXPECT_EQ(resumed.parameters_crc32c, expected) << o.checkpoint.directory;
    }
  }
}

// The error comes in the next step, and before the model is saved.
TEST_F(TrainerOnTheDevice, LossThatIsNotFiniteIsNotSaved) {
  auto o = options("sgd");
  o.checkpoint.directory = temporary_.path() / "checkpoints";
  o.checkpoint.every_steps = 4;
  o.steps = 4;
  std::array<int, kRanks> calls{};
  const auto errors = comm::test::run_gpu_ranks(kRanks, [&](const comm::test::GpuRank& r) {
    const auto loss = [&](const torch::Tensor& scores, const torch::Tensor& targets) {
      const bool poisoned = ++calls.at(static_cast<std::size_t>(r.rank)) == 4 && r.rank == 1;
      return torch::nn::functional::cross_entropy(scores, targets) * (poisoned ? NAN : 1.0);
    };
    fit(r.group, device(r.rank), o, {}, loss);
  });
  EXPECT_THAT(errors, Each(HasSubstr("the loss is not finite on rank 1 in step 4")));
  std::vector<std::string> saved;
  for (const auto& entry : fs::directory_iterator(o.checkpoint.directory)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("step-")) saved.push_back(name);
  }
  EXPECT_THAT(saved, testing::IsEmpty());
}

TEST_F(TrainerOnTheDevice, LogsEveryLoss) {
  auto o = options("sgd");
  o.report_directory = temporary_.path() / "report";
  const auto losses_of = [&](const auto& run) {
    fs::remove_all(o.report_directory);
    run(o);
    std::ifstream file(o.report_directory / "steps.csv");
    std::string text;
    std::vector<std::string> losses;
    while (std::getline(file, text)) {
      std::stringstream line(text);
      for (int column = 0; column < 3; ++column) std::getline(line, text, ',');
      losses.push_back(text);
    }
    return losses;
  };
  const auto expected = losses_of([&](const auto& options) { on_cpus(options); });
  EXPECT_EQ(losses_of([&](const auto& options) { on_devices(options); }), expected);
  EXPECT_EQ(expected.size(), kSteps + 1U);
}

TEST_F(TrainerOnTheDevice, RefusesStaleness) {
  auto o = options("sgd");
  o.clip_norm = 0;
  o.staleness = 1;
  EXPECT_THAT(errors_on_devices(o),
              Each(HasSubstr("the parameter server keeps float32 in host memory, and ")));
}

TEST_F(TrainerOnTheDevice, OutOfMemoryIsExplainedOnAllRanks) {
  const auto more_than_there_is = [](comm::Group& group) {
    if (group.rank() == 1) torch::ones({std::int64_t{1} << 30}, device(1));
  };
  EXPECT_THAT(errors_on_devices(options("sgd"), more_than_there_is),
              Each(AllOf(HasSubstr("out of memory: tried to allocate 4294967296 bytes. A "
                                   "smaller --batch with a larger --accumulate needs less"),
                         Not(HasSubstr("Exception raised from")))));
}

TEST_F(TrainerOnTheDevice, BatchOfAnEvaluationMakesNoHostWait) {
  const auto waits_with = [&](std::int64_t batch) {
    int waits = 0;
    comm::test::run_on_gpus(1, [&](const comm::test::GpuRank& r) {
      const auto model = models::make_model({"mlp", {1, 8, 8}, 10, 0, 0});
      move_to(*model, device(r.rank));
      forget_host_waits();
      train::evaluate(r.group, *model, {[&](const torch::Tensor& x) { return model->forward(x); }},
                      *data_.evaluation, 64, batch, amp::Precision::fp32);
      waits = host_waits();
    });
    return waits;
  };
  EXPECT_EQ(waits_with(8), waits_with(64));
}

// Collectives end after the program's step, and are in the report nevertheless.
TEST_F(TrainerOnTheDevice, ReportHasTheDeviceAndItsTimes) {
  auto o = options("sgd");
  o.report_directory = temporary_.path() / "report";
  on_devices(o);
  double bytes = 0;
  for (const auto& p : parameters_) bytes += static_cast<double>(p.nbytes());
  const auto report = nlohmann::json::parse(std::ifstream(o.report_directory / "run.json"));
  EXPECT_EQ(report.at("backend"), "nccl");
  EXPECT_EQ(report.at("device"), "fakegpu");
  EXPECT_GE(report.at("comm").at("bytes_per_step").get<double>(), bytes);
  const auto& seconds = report.at("step_seconds");
  double sum = 0;
  for (const char* part :
       {"data", "forward", "backward", "exposed_comm", "optimizer", "checkpoint", "other"}) {
    EXPECT_GE(seconds.at(part).get<double>(), 0) << part;
    sum += seconds.at(part).get<double>();
  }
  EXPECT_NEAR(sum, seconds.at("mean").get<double>(), 1e-9);
  const auto trace = nlohmann::json::parse(std::ifstream(o.report_directory / "trace.json"));
  std::vector<std::string> names;
  for (const auto& event : trace.at("traceEvents")) names.push_back(event.at("name"));
  EXPECT_THAT(names, Contains(StartsWith("bucket 0: ")));
  EXPECT_THAT(names, Contains("backward"));
}

}  // namespace
}  // namespace ddp::fake_device
