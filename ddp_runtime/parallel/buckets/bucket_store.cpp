// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/bucket_store.h"

#include "ddp_runtime/parallel/tensors/flat_memory.h"

namespace ddp {
BucketStore::BucketStore(comm::Group& group, std::span<const torch::Tensor> parameters,
                         const BucketPlan& plan, const ReduceType& reduce_type)
    : gradients_(parameters.size()) {
  buckets_.reserve(plan.buckets.size());
  for (const auto& members : plan.buckets) {
    std::int64_t elements = 0;
    for (const std::size_t index : members) elements += parameters[index].numel();
    const auto& first = parameters[members.front()];
    const auto type = first.scalar_type();
    const auto options = first.options().requires_grad(false);
    const auto as_sent = options.dtype(type_on_the_wire(type, reduce_type));
    const auto as_kept = options.dtype(type_of_the_sum(type, reduce_type));
    const auto bytes = static_cast<std::size_t>(elements) * as_sent.dtype().itemsize();
    memory_.push_back(group.allocate(bytes));
    sent_.push_back(tensor_on(memory_.back(), elements, as_sent));
    buckets_.push_back(as_sent.dtype() == as_kept.dtype() ? sent_.back()
                                                          : torch::empty({elements}, as_kept));
    std::int64_t offset = 0;
    for (const std::size_t index : members) {
      gradients_[index] = gradient_window(buckets_.back(), offset, parameters[index]);
      offset += parameters[index].numel();
    }
  }
}

void BucketStore::put_into_sent(std::size_t index) const {
  if (sent_[index].is_same(buckets_[index])) return;
  const torch::NoGradGuard no_grad;
  sent_[index].copy_(buckets_[index]);
}

void BucketStore::take_from_sent(std::size_t index) const {
  if (sent_[index].is_same(buckets_[index])) return;
  const torch::NoGradGuard no_grad;
  buckets_[index].copy_(sent_[index]);
}

}  // namespace ddp
