// SPDX-License-Identifier: Apache-2.0
// Runs the network check on rank 0: its stages in order, and the verdict.
#pragma once

#include "ddp_runtime/check/net/run_net.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/verdict.h"

namespace ddp::check {

Verdict run_leader(Leader& leader, const NetOptions& options);

// The verdict if the leader could not open its port.
Verdict verdict_without_port(const NetOptions& options, const std::string& why);

}  // namespace ddp::check
