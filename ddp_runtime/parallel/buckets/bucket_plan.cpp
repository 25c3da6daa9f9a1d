// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/bucket_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace ddp {

BucketLimits limits_on(bool gpus, BucketLimits limits) {
  if (limits.bytes == 0) limits.bytes = gpus ? kBucketOnGpus : kBucketOnCpus;
  return limits;
}

BucketPlan plan_buckets(std::span<const GradientSize> gradients,
                        std::span<const std::size_t> ready_order, const BucketLimits& given) {
  const auto limits = limits_on(/*gpus=*/false, given);
  struct OpenBucket {
    std::vector<std::size_t> members;
    std::size_t bytes = 0;
  };
  BucketPlan plan;
  std::map<int, OpenBucket> open;
  const auto close = [&](OpenBucket& bucket) {
    plan.buckets.push_back(std::move(bucket.members));
    bucket = {};
  };
  for (const std::size_t index : ready_order) {
    OpenBucket& bucket = open[gradients[index].key];
    bucket.members.push_back(index);
    bucket.bytes += gradients[index].bytes;
    const std::size_t limit = plan.buckets.empty() ? limits.first_bytes : limits.bytes;
    if (bucket.bytes >= limit) close(bucket);
  }
  for (auto& [key, bucket] : open) {
    if (!bucket.members.empty()) close(bucket);
  }
  plan.bucket_of.resize(gradients.size());
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (const std::size_t index : plan.buckets[b]) plan.bucket_of[index] = b;
  }
  return plan;
}

std::vector<std::size_t> reverse_order(std::size_t n) {
  std::vector<std::size_t> order(n);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

}  // namespace ddp
