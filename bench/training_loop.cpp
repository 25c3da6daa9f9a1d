// SPDX-License-Identifier: Apache-2.0
#include "bench/training_loop.h"

namespace ddp::bench {
namespace {

std::shared_ptr<models::Model> seeded_model(const models::ModelOptions& options) {
  torch::manual_seed(1);
  return models::make_model(options);
}

}  // namespace

TrainingLoop::TrainingLoop(const models::ModelOptions& options, std::int64_t batch)
    : model_(seeded_model(options)),
      optimizer_(model_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {
  auto sizes = options.input;
  sizes.insert(sizes.begin(), batch);
  if (options.tokens) {
    inputs_ = torch::randint(0, options.classes, sizes, torch::kInt64);
    targets_ = torch::randint(0, options.classes, sizes, torch::kInt64);
  } else {
    inputs_ = torch::randn(sizes);
    targets_ = torch::randint(0, options.classes, {batch}, torch::kInt64);
  }
}

torch::Tensor TrainingLoop::loss() {
  const auto scores = model_->forward(inputs_);
  return torch::nn::functional::cross_entropy(scores.flatten(0, -2), targets_.flatten());
}

// Leaves the gradients undefined, as zero_grad() does by default in torch 2, which is fastest.
void TrainingLoop::forget_gradients() {
  for (auto& p : model_->parameters()) p.mutable_grad().reset();
}

void TrainingLoop::step() {
  forget_gradients();
  loss().backward();
  optimizer_.step();
}

void TrainingLoop::step(DistributedDataParallel& replica) {
  auto step = replica.begin_step();
  step.backward(loss());
  step.apply(optimizer_);
}

void TrainingLoop::step(ReducerPeer& reducer) {
  forget_gradients();
  reducer.before_forward();
  const auto value = loss();
  reducer.before_backward();
  value.backward();
  optimizer_.step();
}

}  // namespace ddp::bench
