// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/own_rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>

#include "base/subprocess.h"
#include "base/text.h"
#include "ddp_runtime/check/findings/short_list.h"
#include "spank_plugin/fabric/choice/compute_ports.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"
#include "spank_plugin/fabric/choice/roce_gid.h"
#include "spank_plugin/fabric/files/assignments.h"
#include "spank_plugin/fabric/files/ip_address.h"
#include "spank_plugin/fabric/host/local_addresses.h"

namespace ddp::check {
namespace {

using fabric::InfinibandPort;

constexpr double kBytesPerGigabit = 1e9 / 8;
constexpr std::size_t kMaxUntestedText = 300;

// The value of NCCL_IB_HCA in a job on this node; empty if none is chosen.
std::string chosen_ports(const fabric::Node& node, const Environment& environment) {
  constexpr const char* kName = "NCCL_IB_HCA";
  if (const auto value = environment(kName); value && !value->empty()) return *value;
  if (const auto* line = fabric::find_assignment(node.nccl_files, kName)) return line->value;
  return node.site.ib_hca ? "=" + *node.site.ib_hca : "";
}

// Indices into node.ports, in PCI order.
std::vector<std::size_t> ports_of_a_job(const fabric::Node& node, const Environment& environment) {
  const std::string chosen = chosen_ports(node, environment);
  std::vector<std::size_t> ports;
  if (!chosen.empty()) {
    for (const InfinibandPort* port : fabric::nccl_ports(node, chosen)) {
      ports.push_back(static_cast<std::size_t>(port - node.ports.data()));
    }
  }
  if (ports.empty()) return fabric::choose_compute_ports(node).ports;
  std::sort(ports.begin(), ports.end(), [&node](std::size_t a, std::size_t b) {
    return std::tie(node.ports[a].bus_address, a) < std::tie(node.ports[b].bus_address, b);
  });
  return ports;
}

bool is_efa(const InfinibandPort& port) {
  return port.driver == "efa" || port.link_layer == "Unspecified";
}

// Whether the port has an address of any kind, RoCE v1 included, that other nodes can reach.
bool has_global_address(const InfinibandPort& port) {
  return std::any_of(port.gids.begin(), port.gids.end(), [](const fabric::Gid& gid) {
    const auto address = fabric::parse_ip_address(gid.address);
    return address && !address->is_link_local();
  });
}

// Why ib_write_bw cannot connect the port to one of another node; empty if it can. The program
// connects its queue pairs by the addresses of the ports.
std::string obstacle(const InfinibandPort& port) {
  if (is_efa(port)) return "EFA lacks the reliable connections (RC) that ib_write_bw needs";
  if (const auto protocol = fabric::foreign_protocol(port); !protocol.empty()) {
    return fmt::format("ib_write_bw cannot connect {} ports", protocol);
  }
  const bool roce = port.link_layer == "Ethernet";
  return roce && !has_global_address(port) ? "no RoCE address that other nodes can reach" : "";
}

std::optional<int> gid_index_of(const InfinibandPort& port, const Environment& environment) {
  if (port.link_layer != "Ethernet") return std::nullopt;
  const auto chosen = integer(environment, "NCCL_IB_GID_INDEX");
  if (chosen && *chosen >= 0) return chosen;
  const auto gid = fabric::choose_roce_gid(port, "");
  return gid ? std::optional<int>(gid->index) : std::nullopt;
}

OwnRdmaPort describe(const InfinibandPort& port, const Environment& environment) {
  OwnRdmaPort own{{fabric::name_of(port), port.bus_address, {}}, gid_index_of(port, environment)};
  if (port.rate_gbps) own.port.bytes_per_second = *port.rate_gbps * kBytesPerGigabit;
  return own;
}

// The ports that the user named, with what the kernel knows about them.
std::vector<OwnRdmaPort> named_ports(const fabric::Node& node, const Environment& environment,
                                     const std::vector<std::string>& names) {
  std::vector<OwnRdmaPort> ports;
  ports.reserve(names.size());
  for (const auto& name : names) {
    const auto found =
        std::find_if(node.ports.begin(), node.ports.end(), [&name](const InfinibandPort& port) {
          return fabric::name_of(port) == name || port.device == name;
        });
    ports.push_back(found == node.ports.end() ? OwnRdmaPort{{name, "", {}}, {}}
                                              : describe(*found, environment));
  }
  return ports;
}

// "no RoCE address that other nodes can reach (mlx5_1:1)"; empty if none of the ports has an
// obstacle.
std::string untested_text(const fabric::Node& node, const std::vector<std::size_t>& ports) {
  std::map<std::string, std::vector<std::string>> names_by_obstacle;
  for (const std::size_t index : ports) {
    const std::string problem = obstacle(node.ports[index]);
    if (!problem.empty()) names_by_obstacle[problem].push_back(fabric::name_of(node.ports[index]));
  }
  std::string text;
  for (const auto& [problem, names] : names_by_obstacle) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", problem, short_list(names));
  }
  return sanitize_first_line(text, kMaxUntestedText);
}

std::vector<std::size_t> active_ports(const fabric::Node& node) {
  std::vector<std::size_t> ports;
  for (std::size_t i = 0; i < node.ports.size(); ++i) {
    if (node.ports[i].active()) ports.push_back(i);
  }
  return ports;
}

// Stores the ports of a job that can be measured, and says why the others cannot. On a node without
// any such port, says it of all active ports.
void take_ports_of_a_job(const fabric::Node& node, const Environment& environment, RdmaTool& tool) {
  const auto ports = ports_of_a_job(node, environment);
  for (const std::size_t index : ports) {
    if (!obstacle(node.ports[index]).empty()) continue;
    tool.ports.push_back(describe(node.ports[index], environment));
  }
  tool.untested = untested_text(node, tool.ports.empty() ? active_ports(node) : ports);
}

}  // namespace

bool RdmaTool::runnable() const {
  return !ports.empty() && can_be_executed(program);
}

RdmaTool find_rdma(const fabric::Node& node, const Environment& environment,
                   const RdmaRequest& request) {
  RdmaTool tool{.program = request.program};
  if (request.ports.empty()) {
    take_ports_of_a_job(node, environment, tool);
  } else {
    tool.ports = named_ports(node, environment, request.ports);
  }
  if (tool.ports.size() > kMaxRdmaPorts) tool.ports.resize(kMaxRdmaPorts);
  return tool;
}

RdmaTool find_own_rdma(const Environment& environment, const RdmaRequest& request) {
  fabric::Roots roots;
  roots.home = environment("HOME").value_or("");
  roots.nccl_conf_file = environment("NCCL_CONF_FILE").value_or("");
  return find_rdma(fabric::read_node(roots, fabric::local_addresses()), environment, request);
}

}  // namespace ddp::check
