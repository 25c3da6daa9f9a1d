// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/tensor_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ddp {

BucketPlan plan_buckets_of(std::span<const NamedTensor> parameters,
                           std::span<const std::size_t> ready_order, const BucketLimits& limits) {
  std::vector<GradientSize> sizes;
  sizes.reserve(parameters.size());
  for (const auto& p : parameters) {
    sizes.push_back({p.tensor.nbytes(), static_cast<int>(p.tensor.scalar_type())});
  }
  const bool gpus =
      std::ranges::any_of(parameters, [](const auto& p) { return !p.tensor.is_cpu(); });
  return plan_buckets(sizes, ready_order, limits_on(gpus, limits));
}

std::string describe_bucket(const BucketPlan& plan, std::span<const NamedTensor> parameters,
                            std::size_t bucket) {
  const auto& members = plan.buckets[bucket];
  const auto& first = parameters[members.front()].name;
  if (members.size() == 1) return fmt::format("bucket {}: {}", bucket, first);
  return fmt::format("bucket {}: {} to {}", bucket, first, parameters[members.back()].name);
}

}  // namespace ddp
