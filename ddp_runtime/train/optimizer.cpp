#include "ddp_runtime/train/optimizer.h"

#include <fmt/format.h>

#include "ddp_runtime/comm/errors.h"

namespace ddp::train {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::vector<torch::Tensor> parameters,
                                                        const OptimizerOptions& options) {
  const double lr = options.learning_rate;
  if (options.name == "sgd") {
    return std::make_unique<torch::optim::SGD>(
        std::move(parameters),
        torch::optim::SGDOptions(lr).momentum(options.momentum).weight_decay(options.weight_decay));
  }
  if (options.name == "adam") {
    return std::make_unique<torch::optim::Adam>(
        std::move(parameters), torch::optim::AdamOptions(lr).weight_decay(options.weight_decay));
  }
  if (options.name == "adamw") {
    return std::make_unique<torch::optim::AdamW>(
        std::move(parameters), torch::optim::AdamWOptions(lr).weight_decay(options.weight_decay));
  }
  throw UsageError(fmt::format("unknown optimizer '{}'; use sgd, adam or adamw", options.name));
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
}

}  // namespace ddp::train
