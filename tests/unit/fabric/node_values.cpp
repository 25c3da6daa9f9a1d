// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fabric/node_values.h"

#include <stdexcept>
#include <utility>

namespace ddp::test {
namespace {

std::pair<fabric::IpAddress, int> network_of(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto address = fabric::parse_ip_address(text.substr(0, slash));
  if (!address || slash == std::string::npos) throw std::runtime_error("no network: " + text);
  return {*address, std::stoi(text.substr(slash + 1))};
}

}  // namespace

fabric::NetworkInterface& add_interface(fabric::Node& node, const std::string& name,
                                        const std::string& address) {
  fabric::NetworkInterface interface;
  interface.name = name;
  interface.kind = fabric::InterfaceKind::physical;
  interface.up = true;
  interface.running = true;
  node.interfaces.push_back(interface);
  if (!address.empty()) {
    const auto [ip, bits] = network_of(address);
    node.addresses.push_back({name, ip, bits});
  }
  return node.interfaces.back();
}

fabric::InfinibandPort& add_port(fabric::Node& node, const std::string& device,
                                 const std::string& link_layer, double rate,
                                 const fabric::PciPath& path) {
  fabric::InfinibandPort port;
  port.device = device;
  port.port = 1;
  port.link_layer = link_layer;
  port.state = "ACTIVE";
  if (rate > 0) port.rate_gbps = rate;
  if (!path.empty()) port.bus_address = path.back();
  node.ports.push_back(port);
  node.port_paths.push_back(path);
  return node.ports.back();
}

void add_gpu(fabric::Node& node, const fabric::PciPath& path, int numa_node) {
  node.gpus.push_back({path.empty() ? "" : path.back(), "nvidia", "", numa_node, path});
}

void add_route(fabric::Node& node, const std::string& interface, const std::string& network) {
  const auto [address, bits] = network_of(network);
  node.routes.push_back({address, bits, 0, interface});
}

void add_gid(fabric::InfinibandPort& port, int index, const std::string& address,
             const std::string& type, const std::string& interface) {
  port.gids.push_back({index, address, type, interface});
}

fabric::UserVariables variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

fabric::Request two_nodes(const std::string& leader) {
  fabric::Request request;
  request.node_count = 2;
  request.leader_addresses = {leader};
  return request;
}

std::string value_set(const fabric::Plan& plan, const std::string& name) {
  const fabric::Setting* setting = plan.find(name);
  return setting == nullptr || setting->kept ? std::string() : setting->value;
}

}  // namespace ddp::test
