// SPDX-License-Identifier: Apache-2.0
// The update of many parameters on a GPU by one operator of ATen, where
// libtorch's optimizers launch several kernels for each parameter. Needs
// PyTorch 2.4 or newer.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {

#if SLURM_DDP_TORCH_2_4
inline constexpr bool kHasFusedUpdates = true;
#else
inline constexpr bool kHasFusedUpdates = false;
#endif

// Whether the operators accept the tensors of one parameter: strided tensors of
// a floating type on one device, with the same sizes, without gaps and in the
// same order. `others` are the gradient, or the state, which may be on the host if a step brings it
// to the device.
bool can_be_fused(const torch::Tensor& parameter, const std::vector<torch::Tensor>& others,
                  bool may_be_on_host = false);

// Tensors of the same device and type. The i-th elements of the lists belong to
// the i-th parameter.
struct FusedLists {
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> averages;         // momentum buffers for SGD, empty without momentum
  std::vector<torch::Tensor> square_averages;  // of Adam and AdamW
  std::vector<torch::Tensor> max_square_averages;  // of AMSGrad, otherwise empty

  // See Note [Skipped steps]. Float32 scalars on the same device, 1 for a step that is skipped.
  torch::Tensor skip;                        // this step; undefined for a step that is not flagged
  std::vector<torch::Tensor> earlier_skips;  // steps that `step` counts, whatever they turn out

  // See Note [Steps in graphs]. Instead of the options' learning rate, and of `step`; or undefined.
  torch::Tensor learning_rate;
  torch::Tensor step_number;
};

// `first`: the momentum buffers have no values yet.
void fused_sgd(const FusedLists& lists, const torch::optim::SGDOptions& options, bool first);
// `step` is the number of this step of all these parameters, from 1.
void fused_adam(const FusedLists& lists, const torch::optim::AdamOptions& options,
                std::int64_t step);
void fused_adam(const FusedLists& lists, const torch::optim::AdamWOptions& options,
                std::int64_t step);

}  // namespace ddp::optim
