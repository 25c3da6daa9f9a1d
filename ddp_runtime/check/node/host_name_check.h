// SPDX-License-Identifier: Apache-2.0
// Checks the addresses to which the node resolves its own name: Gloo and other libraries announce
// that address to their peers.
#pragma once

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/findings/resolve.h"

namespace ddp::check {

// A name without an address is CRITICAL. If the name service failed, it is UNKNOWN, because all
// nodes see the same failure, and a node must not be drained for it.
Finding evaluate_host_name(const Resolution& resolution);

}  // namespace ddp::check
