// SPDX-License-Identifier: Apache-2.0
// The interface that carries this task's traffic to the leader, and the rate of its link.
#pragma once

#include <string>

#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

// Stores the name, rate and MTU of the interface to hello.leader_address, and all interfaces that
// could be rails. On the leader's machine it is the interface with hello.address. The rate stays
// unknown for virtual interfaces, and the MTU for loopback.
void describe_link(Hello& hello);

// The interface with this numeric address; empty if there is none.
std::string interface_with(const std::string& address);

}  // namespace ddp::check
