// SPDX-License-Identifier: Apache-2.0
// Where the parts of an all_to_all are. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/group/part_sizes.h"

namespace ddp::comm {

// One part for each rank.
struct Parts {
  std::vector<Buffer> input;   // for rank r
  std::vector<Buffer> output;  // from rank r
};

// Throws std::invalid_argument if the sizes do not fit the buffers, the types differ, or this rank,
// `rank` of `size`, does not send itself what it expects from itself.
Parts find_parts(const Buffer& input, const Buffer& output, const PartSizes& sizes, int rank,
                 int size);

}  // namespace ddp::comm
