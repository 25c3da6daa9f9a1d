// Takes bad nodes out of service with scontrol, without taking anybody else's decision back.
#pragma once

#include <span>
#include <string>

#include "ddp_runtime/check/operations.h"

namespace ddp::tools {

// Drains each node that has no reason yet or one of ours, and says what it did, a line for each. A
// node that somebody else drained keeps its reason. Throws RuntimeError if scontrol cannot be
// started or does not answer in time; no node is touched twice.
std::string drain_nodes(std::span<const check::Drain> drains);

}  // namespace ddp::tools
