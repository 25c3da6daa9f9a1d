// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/bucket_store.h"

#include "ddp_runtime/parallel/flat_memory.h"

namespace ddp {
namespace {

// A gradient follows the memory layout of its parameter if that layout is dense; otherwise autograd
// would copy it back and forth.
torch::Tensor gradient_in(const torch::Tensor& bucket, std::int64_t offset,
                          const torch::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) {
    return window(bucket, offset, parameter.sizes(), parameter.strides());
  }
  const auto contiguous = torch::empty_like(parameter, at::MemoryFormat::Contiguous);
  return window(bucket, offset, contiguous.sizes(), contiguous.strides());
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
      gradients_[index] = gradient_in(buckets_.back(), offset, parameters[index]);
      offset += parameters[index].numel();
    }
  }
}

}  // namespace ddp
