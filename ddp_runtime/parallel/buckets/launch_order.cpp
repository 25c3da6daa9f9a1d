// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/launch_order.h"

#include <algorithm>

namespace ddp {

LaunchOrder::LaunchOrder(const BucketPlan& plan)
    : bucket_of_(plan.bucket_of), ready_(plan.bucket_of.size()) {
  bucket_sizes_.reserve(plan.buckets.size());
  for (const auto& bucket : plan.buckets) bucket_sizes_.push_back(bucket.size());
  pending_ = bucket_sizes_;
}

void LaunchOrder::reset() {
  pending_ = bucket_sizes_;
  std::fill(ready_.begin(), ready_.end(), false);
  next_ = 0;
}

LaunchOrder::Launch LaunchOrder::mark_ready(std::size_t index) {
  ready_[index] = true;
  --pending_[bucket_of_[index]];
  const std::size_t first = next_;
  while (next_ < pending_.size() && pending_[next_] == 0) ++next_;
  return {first, next_};
}

std::vector<std::size_t> LaunchOrder::missing() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (!ready_[i]) indices.push_back(i);
  }
  return indices;
}

}  // namespace ddp
