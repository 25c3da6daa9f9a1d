// SPDX-License-Identifier: Apache-2.0
// The memory that a collective uses for a tensor: the tensor's own if its elements are one behind
// the other in it, and otherwise a copy, which is written back afterwards.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>

#include "ddp_runtime/comm/group/buffer.h"

namespace ddp {

class TensorMemory {
 public:
  // All throw UsageError if there is no tensor, or it is not strided (sparse, for example). `what`
  // names the operation in errors: "all_reduce (weights)".

  // For an operation that only reads.
  static TensorMemory to_read(const torch::Tensor& tensor, const std::string& what);
  // For an operation that overwrites the tensor. Throws UsageError if several elements of the
  // tensor share memory, as in an expanded one.
  static TensorMemory to_write(const torch::Tensor& tensor, const std::string& what);
  // For a reduction in place, with to_write()'s errors.
  static TensorMemory to_reduce(const torch::Tensor& tensor, const std::string& what);
  // For a reduction that may overwrite the memory, but not the tensor: always a copy.
  static TensorMemory to_reduce_copy(const torch::Tensor& tensor, const std::string& what);
  // For the result of such a reduction.
  static TensorMemory to_write_reduced(const torch::Tensor& tensor, const std::string& what);

  // Contiguous; holds the memory.
  const torch::Tensor& memory() const noexcept { return memory_; }
  // Elements of any type, for an operation that only moves them.
  comm::Buffer bytes() const;
  // Elements to add or compare: the two parts of complex numbers are elements of their own. Throws
  // UsageError if `op` is not defined for them.
  comm::Buffer elements(comm::ReduceOp op, const std::string& what) const;
  // Writes the memory to the tensor, on the tensor's current stream, if it is a copy.
  void write_back() const;

 private:
  TensorMemory(torch::Tensor tensor, torch::Tensor memory)
      : tensor_(std::move(tensor)), memory_(std::move(memory)) {}

  torch::Tensor tensor_;
  torch::Tensor memory_;
};

// The operation by which elements of the tensor's type are reduced: the sum of truth values is
// whether any of them is true.
comm::ReduceOp operation_for(const torch::Tensor& tensor, comm::ReduceOp op);

}  // namespace ddp
