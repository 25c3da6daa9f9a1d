// SPDX-License-Identifier: Apache-2.0
// Measures all tasks of the step together, connected as a training connects them: by MPI or over
// TCP.
#pragma once

#include "ddp_runtime/check/net/net_state.h"

namespace ddp::check {

void measure_ranks(NetState& state);

}  // namespace ddp::check
