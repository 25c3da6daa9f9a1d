// SPDX-License-Identifier: Apache-2.0
// The interface that carries this task's traffic to the leader, and the rate of its link.
#pragma once

#include <string>

#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

// Stores the name, rate and MTU of the interface with the address hello.address, and all interfaces
// that could be rails. The rate stays unknown for virtual interfaces.
void describe_link(Hello& hello);

// The interface with this numeric address; empty if there is none.
std::string interface_with(const std::string& address);

}  // namespace ddp::check
