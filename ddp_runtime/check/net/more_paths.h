// SPDX-License-Identifier: Apache-2.0
// Measures the paths besides plain TCP: single interfaces, RDMA, and GPUs.
#pragma once

#include "ddp_runtime/check/net/net_state.h"

namespace ddp::check {

// TCP over each interface that the user named.
void measure_rails(NetState& state);
// One RDMA port after the other, because a training uses all of them, and one that is slow or dead
// must be named.
void measure_rdma(NetState& state);
void measure_nccl(NetState& state);

}  // namespace ddp::check
