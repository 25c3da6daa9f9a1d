// SPDX-License-Identifier: Apache-2.0
// Buckets for the gradients of tensors.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {

// Of parameters that all have gradients and are on one kind of device, which decides the limit that
// is not given. Gradients of different types do not share a bucket. `ready_order`: see
// plan_buckets().
BucketPlan plan_buckets_of(std::span<const NamedTensor> parameters,
                           std::span<const std::size_t> ready_order, const BucketLimits& limits);

// "bucket 3: fc2.weight to fc2.bias". `parameters` are those of the plan.
std::string describe_bucket(const BucketPlan& plan, std::span<const NamedTensor> parameters,
                            std::size_t bucket);

}  // namespace ddp
