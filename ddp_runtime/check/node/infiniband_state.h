// SPDX-License-Identifier: Apache-2.0
// Judges whether an RDMA port should be active.
#pragma once

#include <cstddef>

#include "ddp_runtime/check/findings/finding.h"
#include "spank_plugin/fabric/choice/compute_ports.h"

namespace ddp::check {

// A port that is switched off is off on purpose. A port that has a link but is not active waits for
// a subnet manager. A port without a link may be a spare, unless no port of the node is active.
Finding evaluate_port_state(const fabric::Node& node, const fabric::ComputePorts& compute,
                            std::size_t port);

}  // namespace ddp::check
