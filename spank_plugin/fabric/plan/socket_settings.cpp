// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/socket_settings.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/fabric/choice/candidate.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"
#include "spank_plugin/fabric/choice/socket_choice.h"
#include "spank_plugin/fabric/plan/leader_interface.h"

namespace ddp::fabric {
namespace {

constexpr const char* kInterfaces = "/sys/class/net";

// Returns true if Open MPI and UCX would use this address although other nodes do not reach it.
// They do not use link-local IPv6 addresses.
bool is_trap_with(const Node& node, const NetworkInterface& interface, const IpAddress& address) {
  if (is_trap(interface)) return true;
  return !address.is_v6 && address.is_link_local() && interface.up &&
         !address_of(node.addresses, interface.name);
}

// Returns the interfaces whose addresses other nodes cannot reach, except the chosen one.
std::vector<std::string> traps_beside(const Node& node, const std::string& chosen) {
  std::vector<std::string> traps;
  for (const auto& entry : node.addresses) {
    const NetworkInterface* interface = node.interface(entry.interface);
    if (interface == nullptr || interface->name == chosen) continue;
    if (!is_trap_with(node, *interface, entry.address)) continue;
    if (std::find(traps.begin(), traps.end(), interface->name) == traps.end()) {
      traps.push_back(interface->name);
    }
  }
  return traps;
}

// Returns the chosen interface and those that may share its load, which are as fast or of unknown
// speed.
std::vector<std::string> interfaces_for_data(const Node& node, const std::string& chosen) {
  std::vector<std::string> names{chosen};
  const NetworkInterface* first = node.interface(chosen);
  if (first == nullptr || !is_candidate(*first)) return names;
  for (const auto& other : node.interfaces) {
    const bool slower =
        other.speed_mbps && first->speed_mbps && *other.speed_mbps < *first->speed_mbps;
    if (&other != first && is_candidate(other) && !slower &&
        address_of(node.addresses, other.name)) {
      names.push_back(other.name);
    }
  }
  return names;
}

// Without RDMA, all data may take the route to MASTER_ADDR, which may be the slower network.
// Returns true if it warns.
bool warn_of_slow_leader(const Node& node, const std::string& chosen, PlanBuilder& builder) {
  constexpr int kMuchFaster = 10;
  const NetworkInterface* slow = node.interface(chosen);
  if (slow == nullptr || !slow->speed_mbps || *slow->speed_mbps <= 0) return false;
  const auto in_gbps = [](int mbps) {
    std::string text = std::to_string(mbps / 1000);
    if (mbps % 1000 != 0) text.append(".").append(std::to_string(mbps % 1000 / 100));
    return text.append(" Gb/s");
  };
  for (const auto& fast : node.interfaces) {
    if (!is_candidate(fast) || !address_of(node.addresses, fast.name) || !fast.speed_mbps ||
        *fast.speed_mbps / kMuchFaster < *slow->speed_mbps) {
      continue;
    }
    builder.warn(
        "MASTER_ADDR is reached through " + chosen + " (" + in_gbps(*slow->speed_mbps) +
        "), while " + fast.name + " has " + in_gbps(*fast.speed_mbps) +
        ": give an address on that network with --ddp=master_addr=ADDRESS, or interface = " +
        fast.name + " in /etc/slurm-ddp/fabric.conf");
    return true;
  }
  return false;
}

void set_nccl_sockets(const Node& node, const LeaderInterface& leader, PlanBuilder& builder) {
  constexpr const char* kName = "NCCL_SOCKET_IFNAME";
  if (builder.is_decided(kName)) return;
  const bool wants_rdma = !nccl_ports(node, builder.value_of("NCCL_IB_HCA")).empty() &&
                          !is_on_for_nccl(builder.value_of("NCCL_IB_DISABLE"));
  const bool rdma = wants_rdma && node.can_use_verbs;
  if (wants_rdma && !rdma) {
    builder.warn_of_node(
        "no device file /dev/infiniband/uverbs* can be opened in the task, so NCCL will send "
        "its data over TCP although the node has RDMA ports; is the directory missing in the "
        "container?");
  }
  const bool by_sockets = sends_over_sockets(builder.value_of("NCCL_NET"), rdma);
  // The remedy for a slow leader also brings NCCL and MASTER_ADDR to one interface.
  const bool is_slow = by_sockets && warn_of_slow_leader(node, leader.name, builder);
  const SocketChoice choice = choose_nccl_sockets(node, leader.name, !by_sockets);
  if (!choice.warning.empty() && !is_slow) builder.warn(choice.warning);
  if (choice.value.empty()) {
    builder.note(std::string(kName) + " is left alone: " + choice.reason);
  } else {
    builder.set(kName, choice.value, leader.name + " " + leader.rule + "; " + choice.reason,
                leader.source);
  }
}

// Open MPI uses all interfaces except its two defaults, and hangs on a docker0 that has the same
// address on each node. It refuses to start if both lists are set.
void set_open_mpi_sockets(const LeaderInterface& leader, const std::vector<std::string>& traps,
                          PlanBuilder& builder) {
  constexpr const char* kDefault = "127.0.0.1/8,sppp,";
  constexpr const char* kInclude = "OMPI_MCA_btl_tcp_if_include";
  // Debian's Open MPI 6 is configured so, with which no two nodes can communicate.
  const auto given = builder.given(kInclude);
  if (given && given->value == "lo" && leader.name != "lo" && given->source != "environment") {
    builder.replace(kInclude, leader.name, "instead of lo, which reaches no other node",
                    given->source);
  }
  const bool is_included = builder.is_decided(kInclude);
  if (builder.is_decided("OMPI_MCA_btl_tcp_if_exclude") || is_included || traps.empty()) return;
  builder.set("OMPI_MCA_btl_tcp_if_exclude", kDefault + join(traps, ","),
              "Open MPI's own list, and networks of containers, VPNs and similar", kInterfaces);
}

// UCX uses RDMA if there is any. Otherwise it may choose a docker0.
void set_ucx_sockets(const Node& node, const std::string& interface,
                     const std::vector<std::string>& traps, PlanBuilder& builder) {
  const bool has_rdma = std::any_of(node.ports.begin(), node.ports.end(),
                                    [](const auto& port) { return port.active(); });
  if (builder.is_decided("UCX_NET_DEVICES") || has_rdma || traps.empty()) return;
  builder.set("UCX_NET_DEVICES", join(interfaces_for_data(node, interface), ","),
              "without " + join(traps, ", ") + ": networks of containers, VPNs and similar",
              kInterfaces);
}

void keep_given(PlanBuilder& builder) {
  for (const auto* const name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    static_cast<void>(builder.is_decided(name));
  }
}

// By the name lo, NCCL finds only 127.0.0.1. It can start on any other interface that has an
// address.
void set_nccl_sockets_beside_lo(const Node& node, const std::string& address,
                                PlanBuilder& builder) {
  constexpr const char* kName = "NCCL_SOCKET_IFNAME";
  if (builder.is_decided(kName)) return;
  const auto own = nccl_interfaces(node, "");
  const auto found = std::find_if(own.begin(), own.end(), [&node](const auto& name) {
    return is_candidate(*node.interface(name)) && address_of(node.addresses, name);
  });
  if (found == own.end()) {
    const std::string text = "this node's address, " + address +
                             ", is on lo, where NCCL finds only 127.0.0.1, and no other interface "
                             "has one that other nodes reach: for NCCL, put the address on a dummy "
                             "interface instead";
    return node.gpus.empty() ? builder.note(text) : builder.warn(text);
  }
  if (found == own.begin()) return;
  builder.set(kName, "=" + *found, *found + " has an address; NCCL would start with " + own.front(),
              kInterfaces);
}

// For a node whose address is on lo. Gloo and TensorPipe would bind to 127.0.0.1 by the name lo,
// and find the address by the node's own name if no interface is set.
void set_sockets_of_routed_host(const Node& node, const std::string& address,
                                PlanBuilder& builder) {
  set_nccl_sockets_beside_lo(node, address, builder);
  builder.note("GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME are left alone: this node's address, " +
               address + ", is on lo, and Gloo and TensorPipe find it by the node's name");
  keep_given(builder);
}

}  // namespace

void set_sockets(const Node& node, const Request& request, Plan& plan, PlanBuilder& builder) {
  const auto leader = find_leader_interface(node, request, builder);
  if (!leader) return keep_given(builder);
  plan.interface = leader->name;
  const auto address = address_of(node.addresses, leader->name);
  if (address) plan.local_address = to_string(*address);
  if (node.interface(leader->name)->kind == InterfaceKind::loopback) {
    set_sockets_of_routed_host(node, plan.local_address, builder);
    return set_open_mpi_sockets(*leader, traps_beside(node, leader->name), builder);
  }
  set_nccl_sockets(node, *leader, builder);
  const std::string rule = leader->name + " " + leader->rule;
  builder.set("GLOO_SOCKET_IFNAME", leader->name, rule, leader->source);
  builder.set("TP_SOCKET_IFNAME", leader->name, rule, leader->source);
  const auto traps = traps_beside(node, leader->name);
  set_open_mpi_sockets(*leader, traps, builder);
  set_ucx_sockets(node, leader->name, traps, builder);
}

}  // namespace ddp::fabric
