// SPDX-License-Identifier: Apache-2.0
// The cross-entropy of bf16 or fp16 scores without a copy of them in float32.
//
// Note [Cross-entropy in half precision]
// With a large vocabulary the scores are most of a step's memory: S = 1.6 GB for 16 x 1024 tokens
// and 50304 classes in bf16. libtorch's log_softmax and nll_loss in float32 read and write about
// 18 S for loss and gradient in bf16, and keep several arrays of 2 S. This takes 6 S, and keeps the
// probabilities p, in the type of the scores, until backward:
//
//   softmax, which computes in float32 and rounds p   reads S, writes S
//   the largest p of each row, and its class a        reads S
//   the sum of all other p of the row, in float32     reads S
//   backward: times weight and incoming gradient      reads S, writes S
//
// The loss of a row with target t is (x_a - x_t) + log(1 + others / p_a): p_a does not underflow,
// and nothing cancels. The error of p_a's rounding, at most 2^-8 in bf16 and 2^-11 in fp16, is
// multiplied by 1 - p_a, so a small loss has a small error. In fp16, others lacks the p below
// 2^-25, which are less than 0.0015 together for 50304 classes. The derivative by x_t is minus the
// sum of the other p, not p_t - 1, whose rounding would be as large as the derivative itself where
// p_t is almost 1.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace ddp::train {

// The target that torch's cross-entropy leaves out, and so does this one.
inline constexpr std::int64_t kIgnoredTarget = -100;

// Whether it is worth it for these scores: bf16, on a device, and so many that memory limits the
// loss, not the number of kernels. Not fp16, whose p would be rounded before the loss scale, which
// is there to protect small derivatives, multiplies them.
bool has_cheap_cross_entropy(const torch::Tensor& scores);

// The loss of each target, float32 [n], without a graph; 0 for ignored targets. Scores [n, classes]
// in bf16 or fp16; targets [n], int64.
torch::Tensor half_cross_entropies(const torch::Tensor& scores, const torch::Tensor& targets);

// Their mean over the targets that are not ignored; NaN if all are. Its derivatives have no
// derivatives.
torch::Tensor half_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets);

}  // namespace ddp::train
