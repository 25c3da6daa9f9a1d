// SPDX-License-Identifier: Apache-2.0
// Optimizers by name.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "ddp_runtime/train/options.h"

namespace ddp::train {

// The parameters that require gradients, split by whether weight decay applies. It applies to the
// matrices and kernels that multiply inputs. It does not apply to biases and the parameters of
// norms, which have one dimension and no reason to be small, nor to embeddings, since a step uses
// only some rows but decay would shrink all of them.
struct DecayGroups {
  std::vector<torch::Tensor> decayed;
  std::vector<torch::Tensor> free;
};
DecayGroups decay_groups(const torch::nn::Module& module);

// Creates an optimizer over the module's parameters, in decay groups. Throws UsageError for an
// unknown name.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const torch::nn::Module& module,
                                                        const OptimizerOptions& options);

void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate);

}  // namespace ddp::train
