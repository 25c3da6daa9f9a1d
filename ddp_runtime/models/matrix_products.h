// SPDX-License-Identifier: Apache-2.0
// Linear layers as the operators that are fastest on GPUs.
#pragma once

#include <torch/torch.h>

namespace ddp::models {

// What layer(x) computes. For inputs of three dimensions the layer multiplies first, and adds the
// bias in a pass of its own; here one operator adds it while it writes the product.
torch::Tensor through(const torch::nn::Linear& layer, const torch::Tensor& x);

// x [..., w] times the transposed weight [classes, w]: scores [..., classes].
//
// Note [Odd vocabularies]
// The matrix products of a GPU load and store 16 bytes at a time, so the rows of a matrix must
// begin at multiples of 16 bytes. Scores of GPT-2's 50257 tokens do not: with 50304, a step of
// PyTorch's own model takes 54 ms on an H100 instead of 80 (docs/evidence/gpu.md). `padded`
// products have further classes of weight 0 up to a multiple of kRowMultiple, and the result is a
// view without them.
torch::Tensor scores_of(const torch::Tensor& x, const torch::Tensor& weight, bool padded);

// Elements: 128 bytes of bfloat16, the longest tile of a product.
inline constexpr std::int64_t kRowMultiple = 64;

}  // namespace ddp::models
