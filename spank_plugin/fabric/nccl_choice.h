// SPDX-License-Identifier: Apache-2.0
// What NCCL itself would use on a node, by the rules of its source (src/misc/socket.cc,
// src/transport/net_ib): a variable is set only where NCCL's own choice is wrong, and a user's
// value that leaves nothing to use is reported before NCCL fails on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/fabric/node.h"

namespace ddp::fabric {

// The interfaces in the order in which NCCL finds them: the first is used for bootstrap, all of
// them carry data if there is no RDMA. `value` is NCCL_SOCKET_IFNAME; one of less than two
// characters counts as unset. The rule is then that of NCCL before 2.28, which does not yet exclude
// virbr*: a choice that is right for it is right for all versions.
std::vector<std::string> nccl_interfaces(const Node& node, std::string_view value);

// The active InfiniBand and RoCE ports that NCCL_IB_HCA=`value` selects; all if it is empty. The
// pointers point into node.ports.
std::vector<const InfinibandPort*> nccl_ports(const Node& node, std::string_view value);

// The entries of such a list without its ^ and =: "^=a,b" has the entries a and b.
std::vector<std::string_view> list_entries(std::string_view value);

}  // namespace ddp::fabric
