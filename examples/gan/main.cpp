// SPDX-License-Identifier: Apache-2.0
// Two models that train each other: a generator of handwritten digits and a discriminator. Each has
// its own optimizer and its own replica. A resumed run gives bitwise the same models.
#include <ddp_runtime/ddp.h>

#include <iostream>

constexpr std::int64_t kNoise = 16, kGlobalBatch = 64;

struct Gan : torch::nn::Module {
  Gan() {
    register_module("generator", generator);
    register_module("discriminator", discriminator);
  }
  using Part = torch::nn::Sequential;
  Part generator{torch::nn::Linear(kNoise, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                 torch::nn::Sigmoid()};
  Part discriminator{torch::nn::Linear(64, 64), torch::nn::LeakyReLU(), torch::nn::Linear(64, 1)};
};

// How far the discriminator's answers are from `real` (1) or generated (0).
static torch::Tensor loss_of(const torch::Tensor& answers, double real) {
  return torch::binary_cross_entropy_with_logits(answers, torch::full_like(answers, real));
}

static void train(ddp::World& world, std::int64_t epochs) {
  torch::manual_seed(1);
  Gan gan;
  torch::manual_seed(1000 + static_cast<std::uint64_t>(world.rank()));  // noise of its own
  auto& group = world.group();
  ddp::DistributedDataParallel generator(*gan.generator, group.channel("generator"));
  ddp::DistributedDataParallel discriminator(*gan.discriminator, group.channel("discriminator"));
  const auto adam = torch::optim::AdamOptions(2e-4).betas({0.5, 0.999});
  ddp::optim::Adam makes(gan.generator->parameters(), adam);
  ddp::optim::Adam judges(gan.discriminator->parameters(), adam);
  const auto data = ddp::data::open_data("digits");
  ddp::data::DistributedSampler sampler(
      data.train->size(), /*seed=*/1,
      {.batch = kGlobalBatch / world.size(), .rank = world.rank(), .ranks = world.size()});
  ddp::UserState own;
  ddp::train::TrainingState state(group, gan, {&makes, &judges}, {&generator, &discriminator}, own);
  ddp::train::CheckpointOptions options;
  options.directory = "gan-checkpoints";
  ddp::train::Checkpointer checkpointer(group, state, options, {{"model", "gan"}});
  auto at = checkpointer.resume(/*seed=*/1).value_or(ddp::train::Position{});
  while (at.epoch < epochs) {
    sampler.set_epoch(at.epoch, at.consumed);
    double losses[2] = {};
    for (std::int64_t i = 0; i < sampler.steps_left(); ++i, ++at.step) {
      const auto real = data.train->get(sampler.indices(i, 0)).inputs.flatten(1);
      const auto made = gan.generator->forward(torch::rand({real.size(0), kNoise}));
      auto step = discriminator.begin_step();
      const auto judged = loss_of(gan.discriminator->forward(real), 1) +
                          loss_of(gan.discriminator->forward(made.detach()), 0);
      step.backward_and_apply(judged, judges);
      // The discriminator's gradients of this loss are discarded when its next step begins.
      auto next = generator.begin_step();
      const auto fooled = loss_of(gan.discriminator->forward(made), 1);
      next.backward_and_apply(fooled, makes);
      losses[0] = judged.item<double>();
      losses[1] = fooled.item<double>();
    }
    at.begin_epoch(at.epoch + 1);
    checkpointer.save(at);
    checkpointer.drain();
    for (double& loss : losses) loss = group.all_reduce_value(loss, ddp::comm::ReduceOp::sum);
    if (world.is_leader()) {
      std::cout << "epoch " << at.epoch << "  discriminator " << losses[0] / world.size()
                << "  generator " << losses[1] / world.size() << "\n";
    }
  }
  const auto crc = ddp::train::parameters_crc32c(ddp::named_parameters(gan));
  if (world.is_leader()) std::cout << "parameters 0x" << std::hex << crc << "\n";
}

int main(int argc, char** argv) {
  return ddp::run("gan", {},
                  [&](ddp::World& world) { train(world, argc > 1 ? std::stoll(argv[1]) : 10); });
}
