// SPDX-License-Identifier: Apache-2.0
// Buckets for the gradients of tensors.
#pragma once

#include <cstddef>
#include <span>

#include "ddp_runtime/parallel/bucket_plan.h"
#include "ddp_runtime/parallel/replica.h"

namespace ddp {

// Of parameters that all have gradients and are on one kind of device, which decides the limit that
// is not given. Gradients of different types do not share a bucket. `ready_order`: see
// plan_buckets().
BucketPlan plan_buckets_of(std::span<const NamedTensor> parameters,
                           std::span<const std::size_t> ready_order, const BucketLimits& limits);

}  // namespace ddp
