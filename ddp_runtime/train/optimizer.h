// Optimizers by name.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "ddp_runtime/train/options.h"

namespace ddp::train {

// The parameters that want gradients, by whether weight decay pulls them to zero. It does for the
// matrices and kernels that multiply inputs; it does not for biases and the parameters of norms,
// which have one dimension and no reason to be small, nor for embeddings, of which a step sees only
// some rows but decay would shrink all.
struct DecayGroups {
  std::vector<torch::Tensor> decayed;
  std::vector<torch::Tensor> free;
};
DecayGroups decay_groups(const torch::nn::Module& module);

// Over the module's parameters, in decay groups. Throws UsageError for an unknown name.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const torch::nn::Module& module,
                                                        const OptimizerOptions& options);

void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate);

}  // namespace ddp::train
