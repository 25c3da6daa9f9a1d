// SPDX-License-Identifier: Apache-2.0
// Trains a model whose hidden units are dropped at random. Each step has 12 blocks of 4 samples.
//
// Usage: dropout_ranks STEPS [DIRECTORY OF CHECKPOINTS]
#include <torch/torch.h>

#include <string>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/train/trainer.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return ddp::comm::run("dropout-ranks", {}, [&](ddp::comm::World& world) {
    torch::manual_seed(1);
    torch::nn::Sequential model(torch::nn::Linear(64, 32), torch::nn::ReLU(),
                                torch::nn::Dropout(0.5), torch::nn::Linear(32, 10));
    ddp::train::TrainOptions options;
    options.steps = std::stol(argv[1]);
    options.global_batch = 48;
    options.blocks = 12;
    options.log_every_steps = 1;
    options.optimizer.learning_rate = 0.2;
    if (argc > 2) options.checkpoint.directory = argv[2];
    ddp::train::Trainer trainer(
        world.group(),
        {"dropout-ranks", "", "dropout", *model,
         [&](const torch::Tensor& x) { return model->forward(x.flatten(1)); },
         ddp::data::open_data("digits")},
        options);
    trainer.fit();
  });
}
