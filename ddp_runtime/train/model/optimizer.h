// SPDX-License-Identifier: Apache-2.0
// The optimizer of a run: one by name, or the program's own.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "ddp_runtime/train/options/options.h"

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

// Makes an optimizer over parameters of the module. Called once on each rank, and must make the
// same groups on all of them.
using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(torch::nn::Module& module)>;

// The learning rates of an optimizer's parameter groups, which a schedule changes together: they
// keep the proportions that they have when this object is made.
class GroupRates {
 public:
  // Throws UsageError if a rate is negative or not finite.
  explicit GroupRates(const torch::optim::Optimizer& optimizer);

  // The largest rate that a group had.
  double base() const noexcept { return base_; }
  // Gives `learning_rate` to the groups that had the largest rate, and to the others the same
  // fraction of it as before. The optimizer must have the groups with which this object was made;
  // throws UsageError if their number has changed.
  void set(torch::optim::Optimizer& optimizer, double learning_rate) const;

 private:
  double base_ = 0;
  std::vector<double> fractions_;  // of base_, by group
};

}  // namespace ddp::train
