// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/flat_memory.h"

namespace ddp {

torch::Tensor tensor_on(const std::shared_ptr<std::byte>& memory, std::int64_t elements,
                        const torch::TensorOptions& options) {
  return torch::from_blob(
      memory.get(), {elements}, [memory](void*) {}, options);
}

torch::Tensor window(const torch::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes,
                     at::IntArrayRef strides) {
  const torch::NoGradGuard no_grad;
  auto result = torch::empty({0}, flat.options());
  result.set_(flat.storage(), flat.storage_offset() + offset, sizes, strides);
  return result;
}

}  // namespace ddp
