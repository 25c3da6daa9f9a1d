// Which interface carries this task's traffic to the leader, and what its wire can do.
#pragma once

#include "ddp_runtime/check/net/protocol.h"

namespace ddp::check {

// Fills in interface, rate and MTU of the interface that has hello.address. The rate stays unknown
// for interfaces without a wire of their own.
void describe_link(Hello& hello);

}  // namespace ddp::check
