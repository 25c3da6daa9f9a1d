// SPDX-License-Identifier: Apache-2.0
// The type in which gradients are added up: DataParallelOptions::reduce_type.
//
// Note [Types of gradients]
// Gradients come in the type of their parameters, travel in the reduce type, and end in the longer
// one of both. So float32 gradients that are reduced in bfloat16 are rounded for the wire, half of
// the bytes, and their sums are float32 again. bfloat16 gradients that are reduced in float32 are
// exact on the wire, and their sums keep what bfloat16 would round away. They are the gradients of
// bfloat16 parameters then, which needs an optimizer with masters: see Note [Master weights].
// No factor is needed against overflow, because bfloat16 has the range of float32, and backward
// starts from a mean. Complex gradients keep their type.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>

#include "ddp_runtime/parallel/buckets/options.h"

namespace ddp {

using ReduceType = std::optional<torch::ScalarType>;

// Throws UsageError for a type in which gradients cannot be reduced, and with a hook.
void require_reduce_type(const DataParallelOptions& options);

// In which gradients of this type are sent.
torch::ScalarType type_on_the_wire(torch::ScalarType gradients, const ReduceType& reduce_type);
// Which their sum has.
torch::ScalarType type_of_the_sum(torch::ScalarType gradients, const ReduceType& reduce_type);

// Gives the gradient of a parameter, to which later micro-batches are added, the type of their sum.
void widen_gradient(const torch::Tensor& parameter, const ReduceType& reduce_type);

// Throws UsageError if gradients are longer than the parameters that the optimizer updates, and it
// has no masters of these: operators of libtorch do not mix the types.
void require_masters(torch::optim::Optimizer& optimizer, const ReduceType& reduce_type);

// "auto", for the type of the gradients, "fp32" or "bf16". Throws UsageError for anything else.
ReduceType parse_reduce_type(const std::string& name);
std::string reduce_type_name(const ReduceType& reduce_type);

}  // namespace ddp
