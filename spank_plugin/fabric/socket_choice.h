// What NCCL_SOCKET_IFNAME must say, if anything, so that NCCL meets on a given interface.
#pragma once

#include <string>

#include "spank_plugin/fabric/node.h"

namespace ddp::fabric {

struct SocketChoice {
  std::string value;    // empty: leave it to NCCL
  std::string reason;   // one phrase
  std::string warning;  // a sentence, if the choice may be wrong; else empty
};

// `rdma_carries_data`: NCCL then uses sockets to meet only, and one interface is enough. Otherwise
// it spreads the data over all that it takes, and naming one would cost the others' bandwidth.
SocketChoice choose_nccl_sockets(const Node& node, const std::string& interface,
                                 bool rdma_carries_data);

}  // namespace ddp::fabric
