// SPDX-License-Identifier: Apache-2.0
// All ranks must save the same arrays: parts of different lists would make a checkpoint with holes.
#pragma once

#include <vector>

#include "ddp_runtime/comm/group.h"
#include "hdf5_ckpt/array.h"

namespace ddp::train {

// Collective. Throws RuntimeError on all ranks if names, types or shapes differ between ranks; the
// text names the first rank that differs from rank 0, and an array in which it does.
void require_same_arrays(comm::Group& group, const std::vector<ckpt::ArrayView>& arrays);

}  // namespace ddp::train
