// SPDX-License-Identifier: Apache-2.0
// The division of one checkpoint's writing between the ranks. No side effects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/train/training_state.h"

namespace ddp::train {

std::uint64_t bytes_of(const std::vector<NamedTensor>& arrays);

// The number of ranks that write: one per `bytes_per_writer` bytes, but at least one, at most
// `ranks` and at most one per array.
int count_writers(const std::vector<NamedTensor>& arrays, std::uint64_t bytes_per_writer,
                  int ranks);

// The arrays that writer number `writer` of `writers` writes. Arrays are assigned from the largest
// to the smallest, each to the writer with the fewest bytes so far; arrays that are not replicated
// belong to rank 0. All ranks pass the same list, so all compute the same parts.
std::vector<NamedTensor> part_of(const TrainingState& state, std::vector<NamedTensor> arrays,
                                 int writer, int writers);

// The file that this writer writes: "model.h5", or "rank-00001-of-00004.h5" with several writers.
std::string shard_name(int writer, int writers);

}  // namespace ddp::train
