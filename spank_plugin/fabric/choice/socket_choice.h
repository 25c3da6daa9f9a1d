// SPDX-License-Identifier: Apache-2.0
// The value of NCCL_SOCKET_IFNAME that makes NCCL bootstrap on a given interface, if one is needed.
#pragma once

#include <string>

#include "spank_plugin/fabric/node/node.h"

namespace ddp::fabric {

struct SocketChoice {
  std::string value;    // empty: leave the choice to NCCL
  std::string reason;   // one phrase
  std::string warning;  // a sentence if the choice may be wrong, else empty
};

// If `rdma_carries_data`, NCCL uses sockets only for bootstrap, and one interface is enough.
// Otherwise NCCL spreads the data over all interfaces it selects, and naming one would lose the
// bandwidth of the others.
SocketChoice choose_nccl_sockets(const Node& node, const std::string& interface,
                                 bool rdma_carries_data);

}  // namespace ddp::fabric
