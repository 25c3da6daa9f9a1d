// SPDX-License-Identifier: Apache-2.0
// Tensors on flat memory of a group, and windows on such tensors.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ddp {

// A vector of `elements`, which keeps the memory alive. In the second case that is a tensor of at
// least as many bytes.
torch::Tensor tensor_on(const std::shared_ptr<std::byte>& memory, std::int64_t elements,
                        const torch::TensorOptions& options);
torch::Tensor tensor_on(const torch::Tensor& memory, std::int64_t elements,
                        const torch::TensorOptions& options);

// Note [Windows that are not views]
// A gradient made with narrow().view() is a view, and the optimizers' zero_grad() calls detach_()
// on gradients, which throws for views. A tensor pointed at the storage with set_() shares the
// memory just as well and is not a view.
//
// A window on the storage of `flat`, from element `offset` of `flat` on.
torch::Tensor window(const torch::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes,
                     at::IntArrayRef strides);
// The window of a parameter's gradient. It follows the memory layout of the parameter if that is
// dense; otherwise autograd would copy it back and forth.
torch::Tensor gradient_window(const torch::Tensor& flat, std::int64_t offset,
                              const torch::Tensor& parameter);

// Whether the tensor has elements but no memory for them, because ranks have divided it.
bool is_without_memory(const torch::Tensor& tensor);

}  // namespace ddp
