// Optimisers by name.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "ddp_runtime/train/options.h"

namespace ddp::train {

// Throws UsageError for an unknown name.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::vector<torch::Tensor> parameters,
                                                        const OptimizerOptions& options);

void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate);

}  // namespace ddp::train
