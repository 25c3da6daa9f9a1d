// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/infiniband_kind.h"

#include <algorithm>

#include "spank_plugin/fabric/choice/port_place.h"

namespace ddp::check {
namespace {

using fabric::ComputePorts;
using fabric::LeftOutBy;
using fabric::Node;

// A port with a damaged link is left out because of its rate, and still belongs to the others.
bool is_left_out_for_good(const ComputePorts& compute, std::size_t port) {
  const auto* left_out = compute.find_left_out(port);
  return left_out != nullptr && left_out->by != LeftOutBy::rate;
}

}  // namespace

bool kind_is_certain(const Node& node, std::size_t port) {
  return !node.ports[port].board.empty() || fabric::is_near_gpu(node, port);
}

bool is_rail(const Node& node, const ComputePorts& compute, std::size_t port) {
  return kind_is_certain(node, port) &&
         std::any_of(compute.ports.begin(), compute.ports.end(),
                     [&](std::size_t other) { return fabric::are_of_one_kind(node, port, other); });
}

bool uses_rdma(const Node& node) {
  return !fabric::choose_compute_ports(node).ports.empty() ||
         std::any_of(node.ports.begin(), node.ports.end(),
                     [](const auto& port) { return port.driver == "efa" && port.active(); });
}

std::string card_of(const fabric::InfinibandPort& port) {
  return port.bus_address.substr(0, port.bus_address.rfind('.'));
}

std::string left_out_text(const ComputePorts& compute, std::size_t port) {
  const auto* left_out = compute.find_left_out(port);
  return left_out == nullptr ? "" : "left out by the plan: " + left_out->reason;
}

std::vector<std::size_t> ports_of_its_kind(const Node& node, const ComputePorts& compute,
                                           std::size_t port) {
  const bool is_left_out = compute.find_left_out(port) != nullptr;
  if (is_left_out && (is_left_out_for_good(compute, port) || !is_rail(node, compute, port))) {
    return {};
  }
  std::vector<std::size_t> ports;
  for (std::size_t other = 0; other < node.ports.size(); ++other) {
    if (node.ports[other].active() && fabric::are_of_one_kind(node, port, other) &&
        !is_left_out_for_good(compute, other)) {
      ports.push_back(other);
    }
  }
  return ports;
}

}  // namespace ddp::check
