// SPDX-License-Identifier: Apache-2.0
// A custom model, trained on any number of ranks.
#include <ddp_runtime/ddp.h>

#include <iostream>

struct Net : torch::nn::Module {
  Net() {
    register_module("conv", conv);
    register_module("hidden", hidden);
    register_module("output", output);
  }

  torch::Tensor forward(const torch::Tensor& images) {
    auto x = torch::max_pool2d(torch::relu(conv(images)), 2);
    return output(torch::relu(hidden(x.flatten(1))));
  }

  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 24, 3).padding(1)};
  torch::nn::Linear hidden{24 * 4 * 4, 96};
  torch::nn::Linear output{96, 10};
};

int main() {
  return ddp::run("own-model", {}, [](ddp::World& world) {
    torch::manual_seed(1);
    Net net;  // any torch::nn::Module
    ddp::TrainOptions options;
    options.epochs = 20;
    options.global_batch = 64;
    options.checkpoint.directory = "own-model-checkpoints";
    ddp::Trainer trainer(world.group(),
                         {.program = "own-model",
                          .command = "own-model",
                          .model_name = "own",
                          .module = net,
                          .forward = [&](const torch::Tensor& x) { return net.forward(x); },
                          .data = ddp::data::open_data("digits")},
                         options);
    const auto result = trainer.fit();
    if (result.exit_code() != 0) return result.exit_code();  // interrupted: to be run again
    if (world.is_leader()) std::cout << "accuracy " << result.evaluation.accuracy << "\n";
    return 0;
  });
}
