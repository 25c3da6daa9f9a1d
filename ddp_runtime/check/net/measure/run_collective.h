// One rank's part in the measurement of a collective.
#pragma once

#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/comm/group.h"

namespace ddp::check {

// Runs it order.iterations times after one that warms up, and compares every element of every
// result. `corrupt`: an element of each result is changed first. Throws RuntimeError if the order
// is impossible, and what the group throws.
CollectiveResult run_collective(comm::Group& group, const CollectiveCommand& command, bool corrupt);

}  // namespace ddp::check
