// SPDX-License-Identifier: Apache-2.0
// The division of one checkpoint's writing between the ranks. No side effects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/train/state/state_array.h"
#include "ddp_runtime/train/state/training_state.h"

namespace ddp::train {

// Of the whole arrays.
std::uint64_t bytes_of(const std::vector<StateArray>& arrays);

// The ranks that write, in ascending order: those that have rows of a divided array, and the first
// ranks, one per `bytes_per_writer` bytes, but at least one, and at most one per array.
std::vector<int> writers_of(const std::vector<StateArray>& arrays, std::uint64_t bytes_per_writer,
                            int ranks);

// What this rank, one of `writers`, writes: its rows of divided arrays, and some of the others.
// These are assigned from the largest to the smallest, each to the writer with the fewest bytes so
// far; arrays that are not replicated belong to rank 0. All ranks pass the same list, apart from
// their rows, so all compute the same assignment.
std::vector<StateArray> share_of(const TrainingState& state, std::vector<StateArray> arrays,
                                 const std::vector<int>& writers, int rank);

// The file that this one of the writers writes: "model.h5", or "rank-00001-of-00004.h5" for the
// second of several.
std::string shard_name(const std::vector<int>& writers, int rank);

}  // namespace ddp::train
