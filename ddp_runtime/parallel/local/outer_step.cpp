// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/local/outer_step.h"

namespace ddp {

// The gradient takes the memory of the mean.
void outer_step(const OuterOptions& options, const torch::Tensor& start,
                const torch::Tensor& velocity, const torch::Tensor& mean) {
  const torch::NoGradGuard no_grad;
  const auto& gradient = mean;
  gradient.neg_().add_(start);
  if (velocity.defined()) {
    velocity.mul_(options.momentum).add_(gradient);
    gradient.add_(velocity, options.momentum);
  }
  start.add_(gradient, -options.learning_rate);
  mean.copy_(start);
}

}  // namespace ddp
