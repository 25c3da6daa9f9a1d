// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a small GPT-2 that transformers saved: frozen embeddings, two parameter groups, and
// checkpoints to resume from.
//
//   fine-tune WEIGHTS TEXT [EPOCHS]
#include <ddp_runtime/ddp.h>

#include <iostream>

constexpr std::int64_t kContext = 16;
constexpr std::int64_t kGlobalBatch = 32;

// Matrices learn with weight decay; biases and norms without, and faster.
std::vector<torch::optim::OptimizerParamGroup> parameter_groups(const torch::nn::Module& model) {
  using torch::optim::AdamWOptions;
  const auto [decayed, free] = ddp::train::decay_groups(model);  // only what requires gradients
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed,
                      std::make_unique<AdamWOptions>(AdamWOptions(1e-3).weight_decay(0.1)));
  groups.emplace_back(free, std::make_unique<AdamWOptions>(AdamWOptions(5e-3).weight_decay(0)));
  return groups;
}

void train(ddp::World& world, const std::string& weights, const std::string& text,
           std::int64_t epochs) {
  torch::manual_seed(1);
  const auto data = ddp::data::open_data("text:" + text, {.context = kContext});
  const auto model = ddp::models::make_model({.name = "gpt",
                                              .input = {kContext},
                                              .classes = data.train->shape().classes,
                                              .width = 16,
                                              .layers = 2,
                                              .heads = 2,
                                              .tokens = true});
  ddp::train::freeze(*model, "tokens.*,positions.*");
  ddp::DistributedDataParallel replica(*model, world.group());
  ddp::optim::AdamW optimizer(parameter_groups(*model), torch::optim::AdamWOptions(1e-3));

  const ddp::UserState own;
  ddp::train::TrainingState state(world.group(), *model, optimizer, &replica, own);
  ddp::train::Checkpointer checkpointer(world.group(), state,
                                        {.directory = "fine-tune-checkpoints"},
                                        {{"model", "gpt"}, {"init_from", weights}});
  auto at = checkpointer.resume(/*seed=*/1);
  if (!at) {
    const auto report = ddp::train::initialize_from(world.group(), *model, weights,
                                                    {.map = ddp::ckpt::NameMap::open("gpt2")});
    if (world.is_leader()) std::cout << ddp::train::init_table(report);
    at = ddp::train::Position{};
  }

  ddp::data::DistributedSampler sampler(
      data.train->size(), /*seed=*/1,
      {.batch = kGlobalBatch / world.size(), .rank = world.rank(), .ranks = world.size()});
  while (at->epoch < epochs) {
    sampler.set_epoch(at->epoch, at->consumed);
    double loss = 0;
    for (std::int64_t i = 0; i < sampler.steps_left(); ++i) {
      const auto batch = data.train->draw(sampler.indices(i, 0), sampler.epoch());
      auto step = replica.begin_step();
      const auto scores = model->forward(batch.inputs).flatten(0, 1);
      const auto mean = torch::cross_entropy_loss(scores, batch.targets.flatten());
      step.backward_and_apply(mean, optimizer);
      loss = mean.item<double>();
      ++at->step;
    }
    at->begin_epoch(at->epoch + 1);
    if (world.is_leader()) std::cout << "epoch " << at->epoch << " loss " << loss << "\n";
    checkpointer.save(*at);
    checkpointer.drain();
  }
}

int main(int argc, char** argv) {
  return ddp::run("fine-tune", {}, [&](ddp::World& world) {
    if (argc < 3) throw ddp::UsageError("usage: fine-tune WEIGHTS TEXT [EPOCHS]");
    train(world, argv[1], argv[2], argc > 3 ? std::stoll(argv[3]) : 3);
  });
}
