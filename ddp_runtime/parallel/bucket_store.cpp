// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/bucket_store.h"

namespace ddp {
namespace {

// Note [Windows that are not views]
// A gradient made with narrow().view() is a view, and the optimizers' zero_grad() calls detach_()
// on gradients, which throws for views. A tensor pointed at the storage with set_() shares the
// memory just as well and is not a view.
torch::Tensor window(const torch::Tensor& bucket, std::int64_t offset,
                     const torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  auto window = torch::empty({0}, bucket.options());
  // A gradient follows the memory layout of its parameter if that layout is dense; otherwise
  // autograd would copy it back and forth.
  if (parameter.is_non_overlapping_and_dense()) {
    window.set_(bucket.storage(), offset, parameter.sizes(), parameter.strides());
  } else {
    const auto contiguous = torch::empty_like(parameter, at::MemoryFormat::Contiguous);
    window.set_(bucket.storage(), offset, contiguous.sizes(), contiguous.strides());
  }
  return window;
}

// The tensor keeps the memory alive.
torch::Tensor tensor_on(const std::shared_ptr<std::byte>& memory, std::int64_t elements,
                        const torch::TensorOptions& options) {
  return torch::from_blob(
      memory.get(), {elements}, [memory](void*) {}, options);
}

}  // namespace

BucketStore::BucketStore(comm::Group& group, std::span<const torch::Tensor> parameters,
                         const BucketPlan& plan)
    : gradients_(parameters.size()) {
  buckets_.reserve(plan.buckets.size());
  for (const auto& members : plan.buckets) {
    std::int64_t elements = 0;
    for (const std::size_t index : members) elements += parameters[index].numel();
    const auto options = parameters[members.front()].options().requires_grad(false);
    const auto bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
    memory_.push_back(group.allocate(bytes));
    buckets_.push_back(tensor_on(memory_.back(), elements, options));
    std::int64_t offset = 0;
    for (const std::size_t index : members) {
      gradients_[index] = window(buckets_.back(), offset, parameters[index]);
      offset += parameters[index].numel();
    }
  }
}

}  // namespace ddp
