// SPDX-License-Identifier: Apache-2.0
// Runs the network check on rank 0: its stages in order, and the verdict.
#pragma once

#include "ddp_runtime/check/findings/verdict.h"
#include "ddp_runtime/check/net/run_net.h"
#include "ddp_runtime/check/net/step/leader.h"

namespace ddp::check {

Verdict check_net(Leader& leader, const NetOptions& options);

}  // namespace ddp::check
