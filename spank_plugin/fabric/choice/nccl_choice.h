// SPDX-License-Identifier: Apache-2.0
// NCCL's own choice of interfaces and ports on a node, by the rules of its source
// (src/misc/socket.cc, src/transport/net_ib). It is needed because a variable is set only where
// that choice is wrong, and because a user's value that selects nothing is reported before NCCL
// fails on it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/fabric/node/node.h"

namespace ddp::fabric {

inline constexpr std::size_t kMaxNcclPorts = 32;  // NCCL's MAX_IB_DEVS

// Returns the number that NCCL reads from a variable such as NCCL_IB_DISABLE, like strtoll(3) with
// base 0; nullopt if the text does not begin with one ("true"), which NCCL takes for 0.
std::optional<long long> nccl_number(const std::string& text);

// True if NCCL reads another number than 0 from this text, which may be empty.
bool is_on_for_nccl(const std::string& text);

// True if NCCL's data goes over sockets, with NCCL_NET=`net`: "Socket", "IB", or a network that a
// plugin brings, such as libfabric's; empty lets NCCL choose.
bool sends_over_sockets(std::string net, bool has_rdma);

// True for the link layers that NCCL uses.
bool speaks_verbs(const InfinibandPort& port) noexcept;

// Returns the interfaces in the order in which NCCL finds them. NCCL uses the first for bootstrap,
// and all of them for data if there is no RDMA. `value` is NCCL_SOCKET_IFNAME; a value of less than
// two characters counts as unset. The rule for an unset value is that of NCCL before 2.28, which
// does not yet exclude virbr*: a choice that is right for those versions is right for all.
std::vector<std::string> nccl_interfaces(const Node& node, std::string_view value);

// Returns the active InfiniBand and RoCE ports that NCCL_IB_HCA=`value` selects, as pointers into
// node.ports, in the order of their names; all of them if `value` is empty. At most kMaxNcclPorts.
std::vector<const InfinibandPort*> nccl_ports(const Node& node, std::string_view value);

// Returns the first entry of a list in NCCL's format whose name contains a blank, which NCCL takes
// as part of the name; empty if there is none.
std::string_view entry_with_blank(std::string_view value);

// Returns the entries of a list in NCCL's format, without ^ and =: "^=a,b" has the entries a and b.
std::vector<std::string_view> list_entries(std::string_view value);

}  // namespace ddp::fabric
