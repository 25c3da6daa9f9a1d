// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/offload/state_file.h"

namespace ddp::optim {

StateFile::StateFile(const std::filesystem::path& directory)
    : file_(ScratchFile::open_in(directory)), stream_(*file_) {}

torch::Tensor StateFile::zeros_like(const torch::Tensor& values) const {
  if (values.numel() < kLeastValues) return torch::zeros_like(values).detach();
  // Has the strides that such a tensor gets, without memory.
  const auto meta = torch::empty_like(values.detach(), torch::TensorOptions(torch::kMeta));
  auto memory = file_->allocate(values.nbytes());
  auto* const first = memory.get();
  return torch::from_blob(
      first, meta.sizes(), meta.strides(),
      [memory = std::move(memory)](void*) mutable { memory.reset(); },
      torch::TensorOptions(values.scalar_type()));
}

torch::Tensor StateFile::moved(const torch::Tensor& tensor) const {
  if (!tensor.defined() || tensor.numel() < kLeastValues || !tensor.is_cpu() ||
      tensor.layout() != torch::kStrided || holds(tensor.data_ptr())) {
    return tensor;
  }
  auto copy = zeros_like(tensor);
  copy.copy_(tensor);
  return copy;
}

}  // namespace ddp::optim
