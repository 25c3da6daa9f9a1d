// SPDX-License-Identifier: Apache-2.0
#include "bench/async_bench.h"

#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "base/errors.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/profile/interval.h"
#include "ddp_runtime/train/trainer.h"

namespace ddp::bench {
namespace {

using nlohmann::json;
using profile::Clock;

// A temporary directory for a run's files, on rank 0.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddp-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw RuntimeError("cannot create " + pattern);
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

// Reads the third column of steps.csv.
std::vector<double> losses_of(const std::filesystem::path& file) {
  std::ifstream csv(file);
  std::string line;
  std::getline(csv, line);
  std::vector<double> losses;
  while (std::getline(csv, line)) {
    const auto second = line.find(',', line.find(',') + 1);
    losses.push_back(std::stod(line.substr(second + 1)));
  }
  return losses;
}

// Delays this rank in the same steps of every run, and records the start of each step.
class HeldUp {
 public:
  HeldUp(const AsyncBenchOptions& options, int rank)
      : pause_(options.sleep_ms),
        slow_(1.0 / static_cast<double>(options.sleep_every)),
        chance_(static_cast<std::uint32_t>(1000 + rank)) {}

  void begin_step() {
    began_.push_back(std::chrono::duration<double>(Clock::now() - start_).count());
    if (slow_(chance_)) std::this_thread::sleep_for(pause_);
  }
  std::vector<double>& began() noexcept { return began_; }

 private:
  std::chrono::duration<double, std::milli> pause_;
  std::bernoulli_distribution slow_;
  std::mt19937 chance_;
  Clock::time_point start_ = Clock::now();
  std::vector<double> began_;
};

train::TrainOptions train_options(const AsyncBenchOptions& options,
                                  std::optional<std::int64_t> staleness,
                                  const std::filesystem::path& directory) {
  train::TrainOptions o;
  o.staleness = staleness;
  o.epochs = options.epochs;
  o.batch = options.batch;
  o.optimizer.learning_rate = options.learning_rate;
  o.optimizer.momentum = options.momentum;
  o.report_directory = directory;
  return o;
}

json run_once(comm::World& world, const AsyncBenchOptions& options,
              std::optional<std::int64_t> staleness) {
  auto& group = world.group();
  const TemporaryDirectory directory;
  const auto data = data::open_data("digits");
  torch::manual_seed(1);
  const auto model = models::make_model({.name = "mlp", .input = data.train->shape().input});
  group.barrier("bench").wait();
  HeldUp held_up(options, group.rank());
  const auto forward = [&](const torch::Tensor& x) {
    if (model->is_training()) held_up.begin_step();
    return model->forward(x);
  };
  train::Trainer trainer(group, {"ddp-bench", "async", "mlp", *model, forward, data},
                         train_options(options, staleness, directory.path()));
  const auto result = trainer.fit();
  auto& began = held_up.began();
  group.all_reduce(comm::buffer_of(std::span(began)), comm::ReduceOp::max, "times").wait();
  if (!world.is_leader()) return nullptr;
  json run = {{"staleness", nullptr},
              {"losses", losses_of(directory.path() / "steps.csv")},
              {"seconds", began},
              {"eval_loss", result.evaluation.loss},
              {"eval_accuracy", result.evaluation.accuracy}};
  if (staleness) run.update(json::parse(result.report).at("asynchronous"));
  return run;
}

}  // namespace

json run_async_bench(comm::World& world, const AsyncBenchOptions& options) {
  std::vector<std::optional<std::int64_t>> bounds = {std::nullopt};
  bounds.insert(bounds.end(), options.staleness.begin(), options.staleness.end());
  json runs = json::array();
  for (const auto& staleness : bounds) runs.push_back(run_once(world, options, staleness));
  return {{"benchmark", "async"},
          {"world_size", world.size()},
          {"batch", options.batch},
          {"learning_rate", options.learning_rate},
          {"momentum", options.momentum},
          {"sleep_ms", options.sleep_ms},
          {"sleep_every", options.sleep_every},
          {"runs", runs}};
}

}  // namespace ddp::bench
