// SPDX-License-Identifier: Apache-2.0
// The training loop with a model on the fake device, and its checkpoints.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "ddp_runtime/comm/in_process/run_ranks.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/train/trainer.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::fake_device {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr std::int64_t kSteps = 12;

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
      model = models::make_model({"mlp", {1, 8, 8}, 10, 0, 0});
      if (!where.is_cpu()) move_to(*model, where);
    }
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
                           o);
    return trainer.fit();
  }

  train::RunResult on_cpus(const train::TrainOptions& o) {
    train::RunResult result;
    comm::run_ranks(kRanks, [&](comm::Group& group) {
      const auto mine = fit(group, torch::kCPU, o);
      if (group.rank() == 0) result = mine;
    });
    return result;
  }

  train::RunResult on_devices(const train::TrainOptions& o) {
    train::RunResult result;
    const auto errors = comm::test::run_gpu_ranks(kRanks, [&](const comm::test::GpuRank& r) {
      const auto mine = fit(r.group, device(r.rank), o);
      if (r.rank == 0) result = mine;
    });
    EXPECT_THAT(errors, Each(""));
    return result;
  }

  test::TemporaryDirectory temporary_;
  data::DataPair data_ = data::open_data("digits");
  std::mutex seeding_;
};

TEST_F(TrainerOnTheDevice, EndsWithTheBitsOfCpus) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const auto expected = on_cpus(options(optimizer));
    const auto result = on_devices(options(optimizer));
    EXPECT_EQ(result.parameters_crc32c, expected.parameters_crc32c) << optimizer;
    EXPECT_EQ(result.evaluation.accuracy, expected.evaluation.accuracy) << optimizer;
  }
}

TEST_F(TrainerOnTheDevice, AccumulatesAndScalesTheLoss) {
  auto o = options("sgd");
  o.micro_batches = 2;
  o.loss_scale = 1024;
  EXPECT_EQ(on_devices(o).parameters_crc32c, on_cpus(o).parameters_crc32c);
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
  for (const char* optimizer : {"sgd", "adamw"}) {
    std::array<int, kRanks> calls{};
    const auto watch = [&](comm::Group& group) {
      const int call = ++calls.at(static_cast<std::size_t>(group.rank()));
      if (call != 4 && call != kSteps) return;
      group.barrier("all ranks are here").wait_host();
      if (group.rank() == 0 && call == 4) forget_host_waits();
      if (group.rank() == 0 && call == kSteps) {
        EXPECT_EQ(host_wait_names(), std::vector<std::string>()) << optimizer;
      }
      group.barrier("counted").wait_host();
    };
    const auto errors = comm::test::run_gpu_ranks(kRanks, [&](const comm::test::GpuRank& r) {
      fit(r.group, device(r.rank), options(optimizer), watch);
    });
    EXPECT_THAT(errors, Each(""));
    EXPECT_EQ(calls[0], kSteps);
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

TEST_F(TrainerOnTheDevice, ReportNamesBackendAndDevice) {
  auto o = options("sgd");
  o.report_directory = temporary_.path() / "report";
  on_devices(o);
  const auto report = nlohmann::json::parse(std::ifstream(o.report_directory / "run.json"));
  EXPECT_EQ(report.at("backend"), "nccl");
  EXPECT_EQ(report.at("device"), "fakegpu");
}

}  // namespace
}  // namespace ddp::fake_device
