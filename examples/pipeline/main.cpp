// SPDX-License-Identifier: Apache-2.0
// Pipeline parallelism: a network of four stages on 1, 2 or 4 ranks, which all compute the same.
// With twice as many ranks and REPLICAS 2, two pipelines work on halves of the batch.
//
//   pipeline [EPOCHS [REPLICAS]]
#include <ddp_runtime/ddp.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace pipeline = ddp::pipeline;

constexpr std::int64_t kGlobalBatch = 64;
constexpr int kMicroBatches = 8;  // of a step, on all replicas
constexpr int kStages = 4;
constexpr std::int64_t kWidth = 128;

// Images [n, 1, 8, 8] to scores [n, 10].
torch::nn::Sequential make_layers(int stage) {
  torch::manual_seed(static_cast<std::uint64_t>(stage));
  torch::nn::Sequential layers;
  if (stage == 0) {
    layers->push_back(torch::nn::Flatten());
    layers->push_back(torch::nn::Linear(64, kWidth));
  } else {
    layers->push_back(torch::nn::Linear(kWidth, kWidth));
  }
  layers->push_back(torch::nn::ReLU());
  layers->push_back(torch::nn::Dropout(0.1));
  if (stage == kStages - 1) layers->push_back(torch::nn::Linear(kWidth, 10));
  return layers;
}

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& digits) {
  return torch::nn::functional::cross_entropy(scores, digits);
}

// The part of the batch that belongs to a replica, in micro-batches. All ranks read all data here;
// those with neither the first nor the last stage need none.
std::vector<pipeline::MicroBatch> cut(const ddp::data::Batch& batch, int replica, int replicas) {
  const auto inputs = batch.inputs.chunk(kMicroBatches);
  const auto targets = batch.targets.chunk(kMicroBatches);
  const auto count = inputs.size() / static_cast<std::size_t>(replicas);
  std::vector<pipeline::MicroBatch> micro_batches;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = static_cast<std::size_t>(replica) * count + i;
    micro_batches.push_back({.input = inputs[place], .target = targets[place]});
  }
  return micro_batches;
}

// Collective. The part of the images whose digit was recognized.
double accuracy(ddp::World& world, pipeline::Pipeline& pipe, const ddp::data::Dataset& data) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto batch = data.draw(all, 0);
  const std::vector<pipeline::MicroBatch> whole = {{.input = batch.inputs}};
  double correct = 0;
  for (const auto& scores : pipe.evaluate(whole)) {
    if (pipe.replica() == 0) correct = (scores.argmax(1) == batch.targets).sum().item<double>();
  }
  correct = world.group().all_reduce_value(correct, ddp::comm::ReduceOp::sum);
  return correct / static_cast<double>(data.size());
}

void train(ddp::World& world, std::int64_t epochs, int replicas) {
  std::vector<torch::nn::Sequential> layers(kStages, nullptr);
  std::vector<pipeline::Stage> stages(kStages);
  // A rank needs only its own stages.
  for (const int stage : pipeline::own_stages(world.group(), kStages, replicas)) {
    layers[static_cast<std::size_t>(stage)] = make_layers(stage);
    stages[static_cast<std::size_t>(stage)] =
        pipeline::make_stage(layers[static_cast<std::size_t>(stage)]);
  }
  const auto set_mode = [&](bool training) {
    for (auto& each : layers) {
      if (each) each->train(training);
    }
  };
  pipeline::PipelineOptions options;
  options.schedule = pipeline::Schedule::interleaved;
  options.replicas = replicas;
  options.seed = 1;  // dropout does not depend on the number of ranks
  pipeline::Pipeline pipe(world.group(), std::move(stages), loss_of, options);
  torch::optim::AdamW optimizer(pipe.parameters(), torch::optim::AdamWOptions(3e-3));

  const auto data = ddp::data::open_data("digits");
  ddp::data::DistributedSampler sampler(data.train->size(), /*seed=*/1,
                                        {.batch = kGlobalBatch, .rank = 0, .ranks = 1});
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch, 0);
    double loss = 0;
    double waiting = 0;
    double seconds = 0;
    for (std::int64_t i = 0; i < sampler.steps_left(); ++i) {
      const auto batch = data.train->draw(sampler.indices(i, 0), epoch);
      const auto micro_batches = cut(batch, pipe.replica(), replicas);
      auto step = pipe.begin_step(static_cast<int>(micro_batches.size()), i);
      step.backward(micro_batches);
      step.apply(optimizer);
      loss = step.mean_loss();
      seconds += pipe.times().seconds;
      waiting += pipe.times().seconds - pipe.times().computing;
    }
    set_mode(false);
    const double right = accuracy(world, pipe, *data.evaluation);
    set_mode(true);
    if (!world.is_leader()) continue;
    std::cout << "epoch " << epoch + 1 << " loss " << loss << " accuracy " << right << "\n";
    // As one string: mpirun could put the line above between its parts.
    std::cerr << "rank 0 waited for others " + std::to_string(100 * waiting / seconds) +
                     " % of the time\n";
  }
}

int main(int argc, char** argv) {
  const std::int64_t epochs = argc > 1 ? std::stoll(argv[1]) : 5;
  const int replicas = argc > 2 ? std::stoi(argv[2]) : 1;
  return ddp::run("pipeline", {}, [&](ddp::World& world) { train(world, epochs, replicas); });
}
