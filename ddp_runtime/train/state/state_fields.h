// SPDX-License-Identifier: Apache-2.0
// What the optimizers of libtorch keep for each parameter, by the names that PyTorch uses.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp::train {

// The state of one class of optimizers.
class StateFields {
 public:
  virtual ~StateFields() = default;

  // Appends "<name>/<field>" for each tensor that the state of the parameter has, and "<name>/step"
  // (an int64 scalar) if the optimizer counts its steps. The tensors share the optimizer's memory,
  // except for the step.
  virtual void append(torch::optim::Optimizer& optimizer, const NamedTensor& parameter,
                      std::vector<NamedTensor>& out) const = 0;
  // Whether there is such a field.
  virtual bool has(const std::string& field) const = 0;
  // Returns the tensor of this field, new, with zeros, like `values`, and part of the state of the
  // parameter; for "step" a scalar that is not part of it. Undefined if there is no such field.
  virtual torch::Tensor allocate(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                                 const std::string& field, const torch::Tensor& values) const = 0;
  virtual void set_step(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                        std::int64_t step) const = 0;
};

// The fields of SGD, Adam, AdamW, RMSprop and Adagrad, and of classes derived from them; null for
// others.
const StateFields* state_fields_of(const torch::optim::Optimizer& optimizer);

}  // namespace ddp::train
