// SPDX-License-Identifier: Apache-2.0
// Decides which gradients share a bucket. No side effects: sizes in, lists of indices out, the same
// on all ranks.
//
// Note [Bucket order]
// Backward produces gradients roughly in the reverse of the order in which the parameters were
// registered, so buckets are filled from the last parameter to the first: bucket 0 is complete
// first and is sent first. The first bucket is small, so that communication starts early; the rest
// have the size at which the network is efficient.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ddp {

// The last bucket is complete only when backward is over, so nothing hides its transfer. It should
// therefore be no larger than the network needs. docs/benchmarks.md has measurements of 4 and
// 25 MiB on CPUs. On a GPU each bucket is a kernel that waits for the other ranks, and networks of
// GPUs need more bytes to be efficient.
inline constexpr std::size_t kBucketOnCpus = std::size_t{4} << 20;
inline constexpr std::size_t kBucketOnGpus = std::size_t{25} << 20;  // as PyTorch's

struct BucketLimits {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = 0;  // 0: kBucketOnCpus or kBucketOnGpus
};

// With the size for CPUs or GPUs if none is given.
BucketLimits limits_on(bool gpus, BucketLimits limits);

struct GradientSize {
  std::size_t bytes = 0;
  // Gradients with different keys (element type, device) cannot share a bucket.
  int key = 0;
};

struct BucketPlan {
  // buckets[b] lists the parameter indices of bucket b in memory order.
  std::vector<std::vector<std::size_t>> buckets;
  // bucket_of[p] is the bucket of parameter p.
  std::vector<std::size_t> bucket_of;
};

// `ready_order` holds every index of `gradients` once, in the order in which backward is expected
// to finish them. A bucket is closed as soon as it holds at least its limit, so a gradient larger
// than the limit has its own bucket; no limit is that for CPUs. Buckets are numbered in the order
// in which they close.
BucketPlan plan_buckets(std::span<const GradientSize> gradients,
                        std::span<const std::size_t> ready_order, const BucketLimits& limits);

// n - 1, n - 2, ..., 0: the expected order before backward has run once.
std::vector<std::size_t> reverse_order(std::size_t n);

}  // namespace ddp
