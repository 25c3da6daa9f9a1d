// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/rdma_settings.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/fabric/choice/affinity.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"
#include "spank_plugin/fabric/choice/port_place.h"
#include "spank_plugin/fabric/choice/roce_gid.h"

namespace ddp::fabric {
namespace {

constexpr const char* kSysfs = "/sys/class/infiniband";

// Returns the RoCE ports that NCCL will use. On InfiniBand ports, no GID needs to be chosen.
std::vector<const InfinibandPort*> roce_ports(const Node& node, const PlanBuilder& builder) {
  auto ports = nccl_ports(node, builder.value_of("NCCL_IB_HCA"));
  std::erase_if(ports, [](const auto* port) {
    return port->link_layer != "Ethernet" || !shows_gid_types(*port);
  });
  return ports;
}

// NCCL before 2.21 uses entry 0, which is RoCE v1. Its variable has one value for all ports.
void set_old_gid_index(const std::vector<const InfinibandPort*>& ports,
                       const std::string& interface, const std::string& source,
                       PlanBuilder& builder) {
  std::optional<int> index;
  for (const InfinibandPort* port : ports) {
    const auto gid = choose_roce_gid(*port, interface);
    if (!gid || (index && *index != gid->index)) {
      builder.warn("NCCL_IB_GID_INDEX is not set: " + name_of(*port) +
                   (gid ? " has its RoCE v2 address at a different entry than the previous ports"
                        : " does not have a RoCE v2 address"));
      return;
    }
    index = gid->index;
  }
  if (index) {
    builder.set("NCCL_IB_GID_INDEX", std::to_string(*index),
                "RoCE v2 entry of this node's ports; NCCL before 2.21 does not look for it",
                source);
  }
}

// Since 2.21 NCCL finds the entry itself, but prefers IPv4 unless configured otherwise.
void set_address_family(const std::vector<const InfinibandPort*>& ports,
                        const std::string& interface, PlanBuilder& builder) {
  std::size_t with_v4 = 0;
  std::size_t with_v6 = 0;
  std::vector<std::string> without;
  for (const InfinibandPort* port : ports) {
    if (const auto gid = choose_roce_gid(*port, interface)) {
      ++(gid->is_v4 ? with_v4 : with_v6);
    } else {
      without.push_back(name_of(*port));
    }
  }
  if (!without.empty()) {
    builder.warn(join(without, ", ") +
                 (without.size() == 1
                      ? " does not have a RoCE v2 address: give its interface an IP address, or "
                        "exclude the port"
                      : " do not have RoCE v2 addresses: give their interfaces IP addresses, or "
                        "exclude the ports") +
                 " with NCCL_IB_HCA");
    return;
  }
  if (with_v4 == 0) {
    builder.set("NCCL_IB_ADDR_FAMILY", "AF_INET6",
                "the RoCE ports have IPv6 addresses only; NCCL looks for IPv4", kSysfs);
  } else if (with_v6 > 0) {
    builder.warn(
        "some RoCE ports have an IPv4 address and some do not: NCCL uses one family for all");
  }
}

// Returns "mlx5_1:1, mlx5_7:1 (far from every GPU), mlx5_4:1 (..)". Names at most four ports for
// each reason, because a device can have more than a hundred virtual functions.
std::string describe(const Node& node, const std::vector<LeftOutPort>& ports) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> texts;
  for (auto at = ports.begin(); at != ports.end();) {
    const auto end = std::find_if(
        at, ports.end(), [at](const LeftOutPort& entry) { return entry.reason != at->reason; });
    std::vector<std::string> names;
    for (auto port = at; port != end && names.size() < kMost; ++port) {
      names.push_back(name_of(node.ports[port->port]));
    }
    const auto more = static_cast<std::size_t>(end - at) - names.size();
    texts.push_back(join(names, ", ") + (more > 0 ? " and " + std::to_string(more) + " more" : "") +
                    " (" + at->reason + ")");
    at = end;
  }
  return join(texts, ", ");
}

// A port without an address is a fault of the configuration if ports like it carry the data.
void warn_of_missing_addresses(const Node& node, const ComputePorts& compute,
                               PlanBuilder& builder) {
  for (const auto& [port, by, reason] : compute.left_out) {
    const bool is_rail = std::any_of(
        compute.ports.begin(), compute.ports.end(),
        [&, port = port](std::size_t used) { return are_of_one_kind(node, port, used); });
    if (by != LeftOutBy::address || !is_rail) continue;
    builder.warn(name_of(node.ports[port]) +
                 " does not have a RoCE v2 address, so it is not used: its interface needs an IP "
                 "address");
  }
}

}  // namespace

void set_hcas(const Node& node, const ComputePorts& compute, PlanBuilder& builder) {
  constexpr const char* kName = "NCCL_IB_HCA";
  if (builder.is_decided(kName)) return;
  if (node.site.ib_hca) {
    const std::string value = "=" + *node.site.ib_hca;
    if (!nccl_ports(node, value).empty()) {
      builder.set(kName, value, "the site's choice", node.site.path);
      return;
    }
    builder.warn(node.site.path + " asks for ib_hca " + *node.site.ib_hca +
                 ", but no active port of this node matches");
  }
  if (compute.ports.empty()) {
    if (!compute.left_out.empty()) {
      builder.warn("the node's RDMA ports are " + compute.left_out.front().reason +
                   ": set NCCL_IB_DISABLE=1");
    }
    return;
  }
  if (compute.left_out.empty()) {
    builder.note(std::string(kName) + " is left alone: all active ports belong to one fabric");
  } else {
    builder.set(kName, exact_port_list(node, compute.ports),
                "without " + describe(node, compute.left_out), kSysfs);
    warn_of_missing_addresses(node, compute, builder);
  }
  if (!compute.doubtful.empty()) {
    builder.note(std::string(kName) + " may have ports for storage or management: " +
                 describe(node, compute.doubtful) + "; if so, set it without them");
  }
}

void set_gids(const Node& node, const std::string& interface, PlanBuilder& builder) {
  if (builder.is_decided("NCCL_IB_GID_INDEX") || builder.is_decided("NCCL_IB_ADDR_FAMILY")) return;
  const auto ports = roce_ports(node, builder);
  if (ports.empty()) return;
  constexpr NcclVersion kFindsGids{2, 21};
  if (node.site.nccl_version && *node.site.nccl_version < kFindsGids) {
    set_old_gid_index(ports, interface, node.site.path, builder);
  } else {
    set_address_family(ports, interface, builder);
  }
}

void bind_ucx(const Node& node, const Request& request, const ComputePorts& compute,
              PlanBuilder& builder) {
  if (!(request.bind_ucx || node.site.bind_ucx) || builder.is_decided("UCX_NET_DEVICES")) return;
  const auto gpu = request.gpu ? find_gpu(node, *request.gpu) : std::nullopt;
  if (!gpu) {
    builder.note("UCX_NET_DEVICES is left alone: the GPU of this task is unknown");
    return;
  }
  const auto assigned = assign_ports(node, compute.ports);
  if (assigned.empty()) return;
  const NearestPort& nearest = assigned[*gpu];
  const std::string name = name_of(node.ports[nearest.port]);
  if (nearest.equally_near < 2) {
    builder.note("UCX_NET_DEVICES is left alone: UCX itself finds " + name + ", the nearest port");
    return;
  }
  builder.set("UCX_NET_DEVICES", name,
              "this GPU's share of " + std::to_string(nearest.equally_near) + " equally near ports",
              "the PCI tree");
}

}  // namespace ddp::fabric
