// SPDX-License-Identifier: Apache-2.0
// The names under which the arrays of a checkpoint are taken as weights.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt {

inline constexpr const char* kModelPrefix = "model/";
inline constexpr const char* kAveragePrefix = "average/";
// The arrays with the averages of the weights: of "model/x" as "user/ema/x".
inline constexpr std::string_view kAverages = "user/ema/";

struct CheckpointArray {
  std::string name;
  std::size_t index;  // in Checkpoint::arrays()
};

// Whether the run averaged its weights (--ema).
bool has_average(const Checkpoint& checkpoint);

// Whether the prefix asks for the averages.
bool asks_for_average(const std::string& prefix);

// Whether the prefix takes the weights of a run that evaluated the averages of its weights (--ema).
bool leaves_the_average(const Checkpoint& checkpoint, const std::string& prefix);

// All arrays under their own names. But if the prefix begins with "average/": the model as the run
// evaluated it, with each array of "model/" as "average/", replaced by its average if it has one.
// A checkpoint without averages has its own names in either case. Sorted by name.
std::vector<CheckpointArray> checkpoint_arrays(const Checkpoint& checkpoint,
                                               const std::string& prefix);

}  // namespace ddp::ckpt
