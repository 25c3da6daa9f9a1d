// SPDX-License-Identifier: Apache-2.0
// Verifies that all ranks save the same arrays: different lists would leave holes in a checkpoint.
#pragma once

#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/state/state_array.h"

namespace ddp::train {

// Collective. Throws RuntimeError on all ranks if names, types or shapes of
// the whole arrays differ between ranks. The error names the first rank that differs from rank 0,
// and one array that differs.
void require_same_arrays(comm::Group& group, const std::vector<StateArray>& arrays);

}  // namespace ddp::train
