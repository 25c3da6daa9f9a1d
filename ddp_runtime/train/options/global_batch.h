// SPDX-License-Identifier: Apache-2.0
// What a rank does in a step, from what all ranks do. No side effects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

// The samples of one micro-batch on one of `ranks` ranks: options.batch, or a part of
// options.global_batch if that is given. Throws UsageError, with the nearest sizes, if the global
// batch cannot be divided equally.
std::int64_t batch_per_rank(const TrainOptions& options, int ranks);

// The micro-batches of one of `ranks` ranks: options.micro_batches, or its part of options.blocks.
// Throws UsageError, with the nearest numbers of ranks, if the blocks cannot be divided equally.
std::int64_t micro_batches_per_rank(const TrainOptions& options, int ranks);

// The numbers of ranks that can train with so many blocks, which are its divisors.
std::vector<int> possible_ranks(std::int64_t blocks);

// "1, 2, 3, 4, 6 or 12"
std::string describe_possible_ranks(std::int64_t blocks);

// Throws UsageError for what does not go together with blocks.
void require_possible_with_blocks(const TrainOptions& options);

}  // namespace ddp::train
