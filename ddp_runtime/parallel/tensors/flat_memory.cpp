// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/tensors/flat_memory.h"

namespace ddp {

namespace {

// Of a device, libtorch finds out to which one the memory belongs, and nothing has no device.
bool is_nowhere(std::int64_t elements, const torch::TensorOptions& options) {
  return elements == 0 && !options.device().is_cpu();
}

}  // namespace

torch::Tensor tensor_on(const std::shared_ptr<std::byte>& memory, std::int64_t elements,
                        const torch::TensorOptions& options) {
  if (is_nowhere(elements, options)) return torch::empty({0}, options);
  return torch::from_blob(
      memory.get(), {elements}, [memory](void*) {}, options);
}

torch::Tensor tensor_on(const torch::Tensor& memory, std::int64_t elements,
                        const torch::TensorOptions& options) {
  if (is_nowhere(elements, options)) return torch::empty({0}, options);
  return torch::from_blob(
      memory.data_ptr(), {elements}, [memory](void*) {}, options);
}

torch::Tensor window(const torch::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes,
                     at::IntArrayRef strides) {
  const torch::NoGradGuard no_grad;
  auto result = torch::empty({0}, flat.options());
  result.set_(flat.storage(), flat.storage_offset() + offset, sizes, strides);
  return result;
}

torch::Tensor gradient_window(const torch::Tensor& flat, std::int64_t offset,
                              const torch::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) {
    return window(flat, offset, parameter.sizes(), parameter.strides());
  }
  const auto contiguous = torch::empty_like(parameter, at::MemoryFormat::Contiguous);
  return window(flat, offset, contiguous.sizes(), contiguous.strides());
}

bool is_without_memory(const torch::Tensor& tensor) {
  return tensor.has_storage() && tensor.numel() > 0 && tensor.storage().data_ptr().get() == nullptr;
}

}  // namespace ddp
