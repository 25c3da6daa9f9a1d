// SPDX-License-Identifier: Apache-2.0
// Trains two steps and saves. The last rank adds different values to the checkpoint than the other
// ranks: "nothing" (no difference), "name", "less" or "shape".
//
// Usage: disagreeing_ranks DIFFERENCE DIRECTORY
#include <torch/torch.h>

#include <string>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/train/trainer.h"

namespace {

ddp::train::UserState state_of(const ddp::comm::World& world, const std::string& difference) {
  const bool differs = world.rank() == world.size() - 1;
  ddp::train::UserState state;
  state.add("average", torch::zeros({differs && difference == "shape" ? 4 : 3}));
  if (!differs || difference != "less") state.add("counts", torch::zeros({2}, torch::kInt64));
  if (differs && difference == "name") state.add("extra", torch::zeros({1}));
  return state;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return ddp::comm::run("disagreeing-ranks", {}, [&](ddp::comm::World& world) {
    torch::manual_seed(1);
    torch::nn::Linear model(64, 10);
    ddp::train::TrainOptions options;
    options.steps = 2;
    options.checkpoint.directory = argv[2];
    ddp::train::Trainer trainer(
        world.group(),
        {"disagreeing-ranks", "", "linear", *model,
         [&](const torch::Tensor& x) { return model->forward(x.flatten(1)); },
         ddp::data::open_data("digits"), state_of(world, argv[1])},
        options);
    trainer.fit();
  });
}
