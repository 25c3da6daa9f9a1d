// SPDX-License-Identifier: Apache-2.0
// The batch of a rank, from the batch of a whole step. No side effects.
#pragma once

#include <cstdint>

#include "ddp_runtime/train/options.h"

namespace ddp::train {

// The samples of one micro-batch on one of `ranks` ranks: options.batch, or a part of
// options.global_batch if that is given. Throws UsageError, with the nearest sizes, if the global
// batch cannot be divided equally.
std::int64_t batch_per_rank(const TrainOptions& options, int ranks);

}  // namespace ddp::train
