// SPDX-License-Identifier: Apache-2.0
// An optimizer's step in parts, for gradients whose values arrive one after the other.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <span>

namespace ddp::optim {

// A step that has begun. Its parts together do what step() does, with the same bits. If it is
// destroyed before finish(), the parameters that it has updated stay updated.
class PartialStep {
 public:
  virtual ~PartialStep() = default;
  PartialStep() = default;
  PartialStep(const PartialStep&) = delete;
  PartialStep& operator=(const PartialStep&) = delete;

  // Updates the parameters of this list that the optimizer holds. Ignores parameters without a
  // gradient and those that this step has already updated. Leaves the ones that only libtorch's
  // step can update to finish().
  virtual void update(std::span<const torch::Tensor> parameters) = 0;
  // Updates all other parameters of the optimizer. Call once, at the end.
  virtual void finish() = 0;
};

// An optimizer whose step can be made in parts. A class that overrides step() of such an optimizer
// should override begin_partial_step(), too: returning null makes callers use step().
class StepsInParts {
 public:
  virtual ~StepsInParts() = default;

  // Begins a step. Each parameter's gradient must be the tensor that will hold its values, or
  // undefined; the values are read by the part that updates the parameter. Until finish(), the
  // gradients, groups, options and state must not be replaced. The optimizer must outlive the
  // result. Returns null, without a change, if the step cannot be split, as with a flag that may
  // skip it (skipped_steps.h).
  virtual std::unique_ptr<PartialStep> begin_partial_step() = 0;
};

}  // namespace ddp::optim
