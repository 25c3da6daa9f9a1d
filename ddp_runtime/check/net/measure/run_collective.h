// SPDX-License-Identifier: Apache-2.0
// Measures a collective on one rank.
#pragma once

#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/comm/group/group.h"

namespace ddp::check {

// Runs the collective command.iterations times after one warm-up, and compares every element of
// every result. `corrupt`: one element of each result is changed before the comparison. Throws
// RuntimeError if the command is invalid, and rethrows the group's exceptions.
CollectiveResult run_collective(comm::Group& group, const CollectiveCommand& command, bool corrupt);

}  // namespace ddp::check
