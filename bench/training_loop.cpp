// SPDX-License-Identifier: Apache-2.0
#include "bench/training_loop.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "ddp_runtime/optim/optimizers.h"

namespace ddp::bench {
namespace {

std::shared_ptr<models::Model> seeded_model(const models::ModelOptions& options) {
  torch::manual_seed(1);
  return models::make_model(options);
}

template <class Theirs, class Ours, class Options>
std::unique_ptr<torch::optim::Optimizer> optimizer_over(std::vector<torch::Tensor> parameters,
                                                        const Options& options,
                                                        TrainingLoop::Library library) {
  if (library == TrainingLoop::Library::ours) {
    return std::make_unique<Ours>(std::move(parameters), options);
  }
  return std::make_unique<Theirs>(std::move(parameters), options);
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::vector<torch::Tensor> parameters,
                                                        const std::string& name,
                                                        TrainingLoop::Library library) {
  using namespace torch::optim;
  if (name == "sgd") {
    return optimizer_over<SGD, ddp::optim::SGD>(std::move(parameters),
                                                SGDOptions(0.01).momentum(0.9), library);
  }
  if (name == "adam") {
    return optimizer_over<Adam, ddp::optim::Adam>(std::move(parameters), AdamOptions(1e-4),
                                                  library);
  }
  if (name == "adamw") {
    return optimizer_over<AdamW, ddp::optim::AdamW>(std::move(parameters), AdamWOptions(1e-4),
                                                    library);
  }
  throw UsageError(fmt::format("unknown optimizer '{}'; use sgd, adam or adamw", name));
}

}  // namespace

TrainingLoop::TrainingLoop(const models::ModelOptions& options, std::int64_t batch,
                           const std::string& optimizer, Library library)
    : model_(seeded_model(options)),
      optimizer_(make_optimizer(model_->parameters(), optimizer, library)) {
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
  optimizer_->step();
}

void TrainingLoop::step(DistributedDataParallel& replica) {
  auto step = replica.begin_step();
  step.backward(loss());
  step.apply(*optimizer_);
}

void TrainingLoop::step_by_bucket(DistributedDataParallel& replica) {
  auto step = replica.begin_step();
  step.backward_and_apply(loss(), *optimizer_);
}

void TrainingLoop::step(ReducerPeer& reducer) {
  forget_gradients();
  reducer.before_forward();
  const auto value = loss();
  reducer.before_backward();
  value.backward();
  optimizer_->step();
}

}  // namespace ddp::bench
