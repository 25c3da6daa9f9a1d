// SPDX-License-Identifier: Apache-2.0
// Limits of TrainOptions: far above every use, and low enough for safe arithmetic.
#pragma once

#include <cstdint>

#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

inline constexpr std::int64_t kMaxSteps = 1'000'000'000'000'000;
inline constexpr std::int64_t kMaxEpochs = 1'000'000'000;
inline constexpr std::int64_t kMaxBatch = 1'000'000'000;  // samples, and micro-batches
inline constexpr std::int64_t kMaxGlobalBatch = 1'000'000'000'000;
inline constexpr std::int64_t kMaxBlocks = 10'000;
inline constexpr std::int64_t kMaxStaleness = 1'000'000'000;
inline constexpr int kMaxLoaderThreads = 1024;
// SGD's first update of a parameter is another one, and libraries choose kernels in the first
// steps.
inline constexpr std::int64_t kMinGraphWarmUp = 3;

// Throws UsageError that names the first option outside of its limits.
void require_within_limits(const TrainOptions& options);

}  // namespace ddp::train
