// SPDX-License-Identifier: Apache-2.0
#include "bench/trainer_bench.h"

#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/contenders.h"
#include "bench/statistics.h"
#include "bench/training_loop.h"
#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/profile/interval.h"
#include "ddp_runtime/train/trainer.h"

namespace ddp::bench {
namespace {

using nlohmann::json;
using profile::Clock;

// A program that uses the trainer.
class TrainerProgram {
 public:
  TrainerProgram(comm::Group& group, const TrainerBenchOptions& options, bool with_callbacks)
      : group_(group),
        options_(options),
        with_callbacks_(with_callbacks),
        model_(models::make_model(options.model)) {}

  // Trains for one more step than it returns, because a step ends when the next one begins.
  std::vector<double> run(std::int64_t steps) {
    began_.clear();
    train::TrainOptions settings;
    settings.steps = steps + 1;
    settings.batch = options_.batch;
    settings.parallel.buckets = options_.buckets;
    if (with_callbacks_) settings.log_every_steps = 1;
    train::Trainer(group_, task(steps + 1), settings).fit();
    std::vector<double> seconds;
    for (std::size_t i = 0; i + 1 < began_.size(); ++i) {
      seconds.push_back(std::chrono::duration<double>(began_[i + 1] - began_[i]).count());
    }
    return seconds;
  }

 private:
  train::TrainTask task(std::int64_t steps) {
    const std::int64_t samples = steps * options_.batch * group_.size();
    std::vector<std::int64_t> shape = {samples};
    shape.insert(shape.end(), options_.model.input.begin(), options_.model.input.end());
    const auto seeded = torch::make_generator<torch::CPUGeneratorImpl>(1);  // the same on all ranks
    const auto data = std::make_shared<data::TensorDataset>(
        torch::randn(shape, seeded),
        torch::randint(options_.model.classes, {samples}, seeded, torch::kInt64),
        options_.model.classes);
    train::TrainTask task{.program = "ddp-bench",
                          .command = "trainer",
                          .model_name = options_.model.name,
                          .module = *model_,
                          .forward =
                              [this](const torch::Tensor& inputs) {
                                began_.push_back(Clock::now());
                                return model_->forward(inputs);
                              },
                          .data = {"synthetic", data, nullptr}};
    task.log = [this](const std::string& line) { characters_ += line.size(); };
    if (with_callbacks_) task.callbacks = callbacks();
    return task;
  }

  train::Callbacks callbacks() {
    return {
        .after_step = [this](const train::StepEvent& event) { losses_ += event.loss.value_or(0); },
        .after_epoch =
            [this](const train::EpochEvent& event) {
              losses_ += event.train_loss;
              return train::Next::go_on;
            }};
  }

  comm::Group& group_;
  const TrainerBenchOptions& options_;
  bool with_callbacks_;
  std::shared_ptr<models::Model> model_;
  std::vector<Clock::time_point> began_;
  double losses_ = 0;           // what a program might do with them
  std::size_t characters_ = 0;  // of the log
};

}  // namespace

json run_trainer_bench(comm::World& world, const TrainerBenchOptions& options) {
  auto& group = world.group();
  TrainerProgram with_callbacks(group, options, true);
  TrainerProgram alone(group, options, false);
  TrainingLoop loop(options.model, options.batch, "sgd", TrainingLoop::Library::ours);
  DistributedDataParallel replica(loop.model(), group, {.buckets = options.buckets});
  std::vector<Contender> contenders;
  contenders.push_back({"trainer_with_callbacks", [&](auto n) { return with_callbacks.run(n); }});
  contenders.push_back({"trainer", [&](auto n) { return alone.run(n); }});
  contenders.push_back(
      {"own_loop", [&](auto n) { return time_steps(n, [&] { loop.step_by_bucket(replica); }); }});
  take_turns(group, contenders, options.steps, options.block);
  json result = {{"benchmark", "trainer"},
                 {"world_size", world.size()},
                 {"model", options.model.name},
                 {"parameters", models::parameter_count(loop.model())},
                 {"batch", options.batch},
                 {"threads", torch::get_num_threads()},
                 {"steps", contenders.front().seconds.size()},
                 {"block", options.block},
                 {"buckets", replica.bucket_count()},
                 {"step_seconds", percentiles(contenders.front().seconds)}};
  for (std::size_t i = 1; i < contenders.size(); ++i) {
    result["compared"][contenders[i].name] =
        comparison(contenders.front(), contenders[i], options.block);
  }
  return result;
}

}  // namespace ddp::bench
