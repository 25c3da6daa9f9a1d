// SPDX-License-Identifier: Apache-2.0
// A custom training loop, with checkpoints to resume from and a report for ddp-report. It trains an
// autoencoder, whose loss differs from the trainer's.
//
//   own-loop [EPOCHS]
#include <ddp_runtime/ddp.h>
#include <ddp_runtime/profile/chrome_trace.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

using ddp::profile::Phase;

struct Autoencoder : torch::nn::Module {
  Autoencoder() {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
  }

  torch::Tensor forward(const torch::Tensor& images) {
    return torch::sigmoid(decoder(torch::relu(encoder(images.flatten(1)))));
  }

  torch::nn::Linear encoder{64, 16};
  torch::nn::Linear decoder{16, 64};
};

constexpr std::int64_t kGlobalBatch = 64;

// Collective; rank 0 writes the files for ddp-report.
void write_report(ddp::World& world, Autoencoder& net, const ddp::profile::StepRecorder& recorder,
                  const std::vector<ddp::train::StepLoss>& losses) {
  ddp::train::RunFacts facts;
  facts.program = facts.command = "own-loop";
  facts.model = "autoencoder";
  facts.data = "digits";
  facts.parameters = ddp::models::parameter_count(net);
  facts.global_batch = kGlobalBatch;
  ddp::train::RunOutcome outcome;
  outcome.steps = static_cast<std::int64_t>(losses.size());
  outcome.train_loss = losses.back().loss;
  const auto report = ddp::train::make_run_report(world.group(), facts, outcome, recorder.steps());
  if (!world.is_leader()) return;
  std::filesystem::create_directories("own-loop-report");
  ddp::train::write_run_files("own-loop-report", report, losses,
                              ddp::profile::chrome_trace(recorder.recent_events(), world.rank()));
}

void train(ddp::World& world, std::int64_t epochs) {
  torch::manual_seed(1);
  Autoencoder net;
  ddp::DistributedDataParallel replica(net, world.group());  // all ranks get rank 0's values
  ddp::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(1e-3));
  const auto data = ddp::data::open_data("digits");
  ddp::data::DistributedSampler sampler(
      data.train->size(), /*seed=*/1,
      {.batch = kGlobalBatch / world.size(), .rank = world.rank(), .ranks = world.size()});

  // Everything that a resumed run needs: model, optimizer, generators, and the program's own
  // values.
  ddp::UserState own;
  ddp::train::TrainingState state(world.group(), net, optimizer, &replica, own);
  ddp::train::CheckpointOptions options;
  options.directory = "own-loop-checkpoints";
  ddp::train::Checkpointer checkpointer(world.group(), state, options, {{"model", "autoencoder"}});
  auto at = checkpointer.resume(/*seed=*/1).value_or(ddp::train::Position{});
  if (world.is_leader()) std::cout << "begins with epoch " << at.epoch + 1 << "\n";

  ddp::profile::StepRecorder recorder;
  std::vector<ddp::train::StepLoss> losses;
  while (at.epoch < epochs) {
    sampler.set_epoch(at.epoch, at.consumed);
    const std::int64_t steps = sampler.steps_left();
    ddp::data::Prefetcher batches(
        steps,
        [&](std::int64_t step) {
          return data.train->draw(sampler.indices(step, 0), sampler.epoch());
        },
        /*workers=*/1, /*depth=*/4);
    for (std::int64_t i = 0; i < steps; ++i) {
      recorder.begin_step();
      ddp::data::Batch batch;
      {
        const auto span = recorder.measure(Phase::data);
        batch = batches.next();
      }
      auto step = replica.begin_step();
      torch::Tensor loss;
      {
        const auto span = recorder.measure(Phase::forward);
        loss = torch::mse_loss(net.forward(batch.inputs), batch.inputs.flatten(1));
      }
      step.backward_and_apply(loss, optimizer);
      const auto& times = replica.times();
      recorder.add(Phase::backward, times.backward);
      recorder.add(Phase::exposed_comm, times.waits);
      recorder.add(Phase::optimizer, times.updates);
      recorder.add_communication(replica.communication(), times.backward, times.updates);
      // The mean over the ranks. This is a collective, so every rank must call it.
      const double sum =
          world.group().all_reduce_value(loss.item<double>(), ddp::comm::ReduceOp::sum);
      recorder.end_step();
      ++at.step;
      losses.push_back({.step = at.step,
                        .epoch = at.epoch,
                        .loss = sum / world.size(),
                        .learning_rate = 1e-3,
                        .seconds = recorder.steps().back().total()});
    }
    if (world.is_leader())
      std::cout << "epoch " << at.epoch + 1 << " loss " << losses.back().loss << "\n";
    at.begin_epoch(at.epoch + 1);
    checkpointer.save(at);
    checkpointer.drain();  // training waits here until the checkpoint is durable
    recorder.pause();
  }
  if (!losses.empty()) write_report(world, net, recorder, losses);
}

int main(int argc, char** argv) {
  const std::int64_t epochs = argc > 1 ? std::stoll(argv[1]) : 10;
  return ddp::run("own-loop", {}, [&](ddp::World& world) { train(world, epochs); });
}
