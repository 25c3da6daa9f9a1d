// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/tensors/tensor_memory.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp {
namespace {

void require_strided(const torch::Tensor& tensor, const std::string& what) {
  if (!tensor.defined()) throw UsageError(fmt::format("{}: there is no tensor", what));
  if (tensor.layout() == c10::kStrided) return;
  throw UsageError(fmt::format(
      "{}: a sparse tensor cannot be communicated; make it dense, or communicate its indices and "
      "values",
      what));
}

void require_writable(const torch::Tensor& tensor, const std::string& what) {
  require_strided(tensor, what);
  if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) return;
  throw UsageError(fmt::format(
      "{}: several elements of the result share memory, as in an expanded tensor; use its clone()",
      what));
}

// NCCL has no 16-bit integers. The lower 16 bits of a sum of 32-bit ones are the same.
torch::ScalarType type_to_reduce(const torch::Tensor& tensor) {
  const bool wider = tensor.scalar_type() == torch::kInt16 && !tensor.device().is_cpu();
  return wider ? torch::kInt32 : tensor.scalar_type();
}

bool is_plain(const torch::Tensor& tensor, torch::ScalarType type) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         tensor.scalar_type() == type;
}

// The tensor itself if it is plain.
torch::Tensor plain(const torch::Tensor& tensor, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  return tensor.detach().resolve_conj().resolve_neg().to(type).contiguous();
}

torch::Tensor memory_to_write(const torch::Tensor& tensor, torch::ScalarType type) {
  if (is_plain(tensor, type)) return tensor.detach();
  return torch::empty(tensor.sizes(), tensor.options().dtype(type).requires_grad(false));
}

// Autograd then notices that a tensor which it saved for backward was overwritten.
void note_change(const torch::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

TensorMemory TensorMemory::to_read(const torch::Tensor& tensor, const std::string& what) {
  require_strided(tensor, what);
  return {{}, plain(tensor, tensor.scalar_type())};
}

TensorMemory TensorMemory::to_write(const torch::Tensor& tensor, const std::string& what) {
  require_writable(tensor, what);
  note_change(tensor);
  return {tensor, memory_to_write(tensor, tensor.scalar_type())};
}

TensorMemory TensorMemory::to_reduce(const torch::Tensor& tensor, const std::string& what) {
  require_writable(tensor, what);
  note_change(tensor);
  return {tensor, plain(tensor, type_to_reduce(tensor))};
}

TensorMemory TensorMemory::to_reduce_copy(const torch::Tensor& tensor, const std::string& what) {
  require_strided(tensor, what);
  const auto type = type_to_reduce(tensor);
  auto memory = plain(tensor, type);
  if (is_plain(tensor, type)) memory = memory.clone();
  return {{}, std::move(memory)};
}

TensorMemory TensorMemory::to_write_reduced(const torch::Tensor& tensor, const std::string& what) {
  require_writable(tensor, what);
  note_change(tensor);
  return {tensor, memory_to_write(tensor, type_to_reduce(tensor))};
}

comm::Buffer TensorMemory::bytes() const {
  return bytes_of(memory_);
}

comm::Buffer TensorMemory::elements(comm::ReduceOp op, const std::string& what) const {
  if (!memory_.is_complex()) return buffer_of(memory_);
  if (op == comm::ReduceOp::sum) return parts_of_complex(memory_);
  throw UsageError(
      fmt::format("{}: complex numbers have no order, so there is no {} of them; reduce their "
                  "absolute values or parts",
                  what, to_string(op)));
}

void TensorMemory::write_back() const {
  if (!tensor_.defined() || is_plain(tensor_, memory_.scalar_type())) return;
  const torch::NoGradGuard no_grad;
  tensor_.detach().copy_(memory_);
}

comm::ReduceOp operation_for(const torch::Tensor& tensor, comm::ReduceOp op) {
  const bool is_any = tensor.scalar_type() == torch::kBool && op == comm::ReduceOp::sum;
  return is_any ? comm::ReduceOp::max : op;
}

}  // namespace ddp
