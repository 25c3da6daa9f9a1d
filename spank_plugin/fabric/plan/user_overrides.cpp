// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/user_overrides.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "spank_plugin/fabric/choice/candidate.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"
#include "spank_plugin/fabric/choice/roce_gid.h"
#include "spank_plugin/fabric/plan/left_over_values.h"

namespace ddp::fabric {
namespace {

// Returns the beginning of a sentence about a list with a blank; empty if it has none.
std::string blank_text(std::string_view value) {
  const auto entry = entry_with_blank(value);
  if (entry.empty()) return {};
  return "write the list without blanks, which NCCL takes as part of a name (" +
         quote_for_display(entry.substr(0, entry.find(':'))) + "): ";
}

// `used` is what NCCL makes of the list.
void warn_of_blank(const std::string& given, std::string_view value, const std::string& used,
                   PlanBuilder& builder) {
  const std::string blank = blank_text(value);
  if (!blank.empty()) builder.warn(given + ": " + blank + "it will use " + used);
}

// Returns true if a library that is told the interface's name binds to the loopback address: it
// takes the first address, which on lo is 127.0.0.1 even if others follow. NCCL does not take ::1,
// and takes only addresses of NCCL_SOCKET_FAMILY.
bool leads_to_loopback(const Node& node, std::string_view interface, bool is_nccl,
                       std::string_view family) {
  for (const auto& [name, address, bits] : node.addresses) {
    const bool fits = family.empty() || (family == "AF_INET6") == address.is_v6;
    if (name != interface || !fits || (is_nccl && address.is_v6 && address.is_loopback())) continue;
    return address.is_loopback();
  }
  return false;
}

void check_nccl_sockets(const Node& node, bool is_one_node, PlanBuilder& builder) {
  const std::string name = "NCCL_SOCKET_IFNAME";
  const auto given = builder.given(name);
  if (!given || given->value.size() < 2) return;
  const auto found = nccl_interfaces(node, given->value);
  if (found.empty()) {
    builder.warn_of_node(
        shown(name, *given) + ": " + blank_text(given->value) +
        "no running interface of this node matches, and NCCL will fail rather than choose "
        "another");
  } else {
    warn_of_blank(shown(name, *given), given->value, join(found, ", "), builder);
  }
  if (found.empty() || is_one_node) return;
  const std::string family = builder.value_of("NCCL_SOCKET_FAMILY");
  const bool loopback = std::any_of(found.begin(), found.end(), [&](const auto& interface) {
    return leads_to_loopback(node, interface, true, family);
  });
  if (loopback) {
    builder.warn(shown(name, *given) +
                 (found.size() > 1 ? ": the loopback matches too, and ranks of other nodes do not "
                                     "answer there; exclude lo too"
                                   : ": NCCL takes the first address of lo, 127.0.0.1, by which "
                                     "ranks of other nodes do not reach this one"));
  } else if (!address_of(node.addresses, found.front())) {
    builder.warn_of_node(shown(name, *given) + ": NCCL will start with " + found.front() +
                         ", which has no address here that other nodes can reach");
  }
}

// Gloo and TensorPipe accept names, not patterns, and fail if one of them is missing.
void check_exact_names(const Node& node, bool is_one_node, PlanBuilder& builder) {
  for (const auto* const name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}) {
    const auto given = builder.given(name);
    if (!given) continue;
    for (const auto entry : split(given->value, ',', 16)) {
      const std::string wrong = what_is_wrong_with(node, entry);
      std::string start = shown(name, *given) + ": ";
      if (node.interface(entry) == nullptr) {
        builder.warn_of_node(start +
                             "this node does not have an interface of that name; it takes exact "
                             "names, not ^, = or a prefix");
      } else if (!is_one_node && leads_to_loopback(node, entry, false, "")) {
        builder.warn(start +
                     "the first address of lo is 127.0.0.1, by which ranks of other nodes "
                     "do not reach this one");
      } else if (!is_one_node && !wrong.empty()) {
        builder.warn_of_node(start.append(entry).append(" ").append(wrong));
      } else {
        continue;
      }
      break;
    }
  }
}

// NCCL_IB_HCA=mlx5_1 also matches mlx5_10.
void check_hca_prefixes(const Node& node, const UserOverride& given, PlanBuilder& builder) {
  if (given.value.find('=') != std::string::npos) return;
  for (const auto entry : list_entries(given.value)) {
    const auto name = entry.substr(0, entry.find(':'));
    const auto is_other = [name](const InfinibandPort& port) {
      return port.device != name && port.device.starts_with(name);
    };
    const bool is_device = std::any_of(node.ports.begin(), node.ports.end(),
                                       [name](const auto& port) { return port.device == name; });
    const auto other = std::find_if(node.ports.begin(), node.ports.end(), is_other);
    if (!is_device || other == node.ports.end()) continue;
    builder.warn(shown("NCCL_IB_HCA", given) + ": " + std::string(name) + " matches " +
                 other->device + " too; begin the list with = for exact names");
    return;
  }
}

void check_hcas(const Node& node, PlanBuilder& builder) {
  const auto given = builder.given("NCCL_IB_HCA");
  if (!given || nccl_ports(node, "").empty()) return;
  std::vector<std::string> found;
  for (const InfinibandPort* port : nccl_ports(node, given->value)) found.push_back(name_of(*port));
  if (found.empty()) {
    builder.warn_of_node(shown("NCCL_IB_HCA", *given) + ": " + blank_text(given->value) +
                         "no active port of this node matches, so NCCL will use TCP or fail");
  } else {
    warn_of_blank(shown("NCCL_IB_HCA", *given), given->value, join(found, ", "), builder);
  }
  check_hca_prefixes(node, *given, builder);
}

void check_gid_index(const Node& node, PlanBuilder& builder) {
  const std::string name = "NCCL_IB_GID_INDEX";
  const auto given = builder.given(name);
  const auto index = given ? parse_decimal(given->value) : std::nullopt;
  if (!index) return;
  for (const InfinibandPort* port : nccl_ports(node, builder.value_of("NCCL_IB_HCA"))) {
    if (port->link_layer == "InfiniBand") {
      builder.warn(shown(name, *given) + ": " + name_of(*port) +
                   " is InfiniBand, where the index means something else; unset it");
      return;
    }
    if (!shows_gid_types(*port) || is_roce_v2_gid(*port, *index)) continue;
    builder.warn(shown(name, *given) + ": entry " + std::to_string(*index) + " of " +
                 name_of(*port) +
                 " is not a RoCE v2 address; NCCL 2.21 and later choose it by "
                 "themselves");
    return;
  }
}

// NCCL reaches Slingshot only through a libfabric plugin. Without it, NCCL silently falls back to
// TCP.
void check_slingshot(const Node& node, bool is_one_node, PlanBuilder& builder) {
  if (is_one_node || node.slingshot.empty() || !builder.value_of("NCCL_NET").empty() ||
      !builder.value_of("NCCL_NET_PLUGIN").empty()) {
    return;
  }
  builder.warn("this node has " + std::to_string(node.slingshot.size()) +
               " Slingshot ports, which NCCL uses only through its libfabric plugin, else TCP: use "
               "--ddp=fabric=slingshot, or preset = slingshot in /etc/slurm-ddp/fabric.conf");
}

void check_ucx(const Node& node, PlanBuilder& builder) {
  const auto given = builder.given("UCX_TLS");
  if (!given || given->value.find("tcp") == std::string::npos) return;
  const auto has_rdma = [](std::string_view transport) {
    return transport == "all" || transport.starts_with("rc") || transport.starts_with("dc") ||
           transport.starts_with("ud") || transport.starts_with("ib");
  };
  const auto transports = split(given->value, ',', 32);
  if (std::any_of(transports.begin(), transports.end(), has_rdma) || given->value.front() == '^' ||
      nccl_ports(node, "").empty()) {
    return;
  }
  builder.warn(shown("UCX_TLS", *given) + ": MPI over UCX will use TCP although there is RDMA");
}

}  // namespace

void warn_of_user_overrides(const Node& node, bool is_one_node, PlanBuilder& builder) {
  warn_of_left_over_values(node, builder);
  check_nccl_sockets(node, is_one_node, builder);
  check_exact_names(node, is_one_node, builder);
  check_hcas(node, builder);
  check_gid_index(node, builder);
  check_ucx(node, builder);
  check_slingshot(node, is_one_node, builder);
}

}  // namespace ddp::fabric
