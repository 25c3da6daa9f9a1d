// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/tensor_buckets.h"

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

}  // namespace ddp
