// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/rdma_rails.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "ddp_runtime/check/findings/short_list.h"
#include "ddp_runtime/check/net/evaluate/another_kind.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxNotes = 4;
constexpr std::size_t kMaxOtherNames = 4;

using Ports = std::vector<RdmaPort>;
using Nodes = std::map<std::string, const Hello*>;  // nodes with compute ports, by name

// What most nodes have.
struct Usual {
  Ports ports;
  std::size_t nodes = 0;  // nodes with this number of ports
  int processors = 0;
};

std::vector<std::string> names_of(const Ports& ports) {
  std::vector<std::string> names;
  for (const auto& port : ports) names.push_back(port.name);
  return names;
}

bool is_at(const RdmaPort& port, const std::string& address) {
  return !address.empty() && port.bus_address == address;
}

bool has_port_at(const Ports& ports, const std::string& address) {
  return std::any_of(ports.begin(), ports.end(),
                     [&](const RdmaPort& port) { return is_at(port, address); });
}

// Whether one has the address or, in another slot, the name.
bool has_port_like(const Ports& ports, const RdmaPort& port) {
  return has_port_at(ports, port.bus_address) ||
         std::any_of(ports.begin(), ports.end(),
                     [&port](const RdmaPort& other) { return other.name == port.name; });
}

// Adds the ports that at least half of the nodes of this make have, so that nodes that lost
// different ports do not count as nodes with fewer. Nodes of one make share PCI addresses.
void add_ports_of_others(const Nodes& nodes, Usual& usual) {
  std::map<std::string, std::pair<std::size_t, RdmaPort>> others;  // with their nodes, by address
  std::size_t alike = 0;
  for (const auto& [node, hello] : nodes) {
    const Ports& own = hello->rdma_ports;
    if (std::none_of(usual.ports.begin(), usual.ports.end(),
                     [&](const RdmaPort& port) { return has_port_at(own, port.bus_address); })) {
      continue;
    }
    ++alike;
    for (const auto& port : own) {
      if (port.bus_address.empty() || has_port_like(usual.ports, port)) continue;
      auto& [count, first] = others[port.bus_address];
      if (++count == 1) first = port;
    }
  }
  for (const auto& [address, other] : others) {
    if (2 * other.first < alike) continue;
    const auto is_behind = [&place_of = address](const RdmaPort& port) {
      return port.bus_address > place_of;
    };
    const auto place = std::find_if(usual.ports.begin(), usual.ports.end(), is_behind);
    usual.ports.insert(place, other.second);
  }
  const auto whole = std::count_if(nodes.begin(), nodes.end(), [&usual](const auto& entry) {
    return entry.second->rdma_ports.size() == usual.ports.size();
  });
  usual.nodes = static_cast<std::size_t>(whole);
}

// The number of ports that most nodes have and, among those nodes, the most common list. Of equally
// common ones, the larger number and the list of the first node.
Usual usual_ports(const Nodes& nodes) {
  std::map<std::size_t, std::size_t> counts;
  for (const auto& [node, hello] : nodes) ++counts[hello->rdma_ports.size()];
  Usual usual;
  std::size_t size = 0;
  for (const auto& [number, those] : counts) {
    if (those >= usual.nodes) std::tie(size, usual.nodes) = std::pair(number, those);
  }
  std::map<std::vector<std::string>, std::size_t> lists;
  std::size_t most = 0;
  for (const auto& [node, hello] : nodes) {
    if (hello->rdma_ports.size() == size)
      most = std::max(most, ++lists[names_of(hello->rdma_ports)]);
  }
  for (const auto& [node, hello] : nodes) {
    if (hello->rdma_ports.size() != size || lists[names_of(hello->rdma_ports)] != most) continue;
    usual.ports = hello->rdma_ports;
    usual.processors = hello->processors;
    break;
  }
  add_ports_of_others(nodes, usual);
  return usual;
}

// For each usual port, the port of this node on the same rail; nullptr if there is none.
std::vector<const RdmaPort*> ports_by_rail(const Ports& own, const Ports& usual) {
  std::vector<const RdmaPort*> found(usual.size(), nullptr);
  const auto match = [&](const auto& is_same) {
    for (std::size_t rail = 0; rail < usual.size(); ++rail) {
      const auto port = std::find_if(own.begin(), own.end(), [&](const RdmaPort& one) {
        return is_same(one, usual[rail]) &&
               std::find(found.begin(), found.end(), &one) == found.end();
      });
      if (found[rail] == nullptr && port != own.end()) found[rail] = &*port;
    }
    return std::any_of(found.begin(), found.end(), [](const auto* one) { return one != nullptr; });
  };
  const auto same_name = [](const RdmaPort& a, const RdmaPort& b) { return a.name == b.name; };
  const auto same_address = [](const RdmaPort& a, const RdmaPort& b) {
    return is_at(a, b.bus_address);
  };
  // Two ports of one device have one address.
  match([&](const auto& a, const auto& b) { return same_address(a, b) && same_name(a, b); });
  const bool by_address = match(same_address);
  if (own.size() != usual.size()) {
    if (!by_address) match(same_name);
    return found;
  }
  // As many ports: those left over belong to the rails left over, in order.
  auto next = own.begin();
  for (auto& port : found) {
    if (port != nullptr) continue;
    while (std::find(found.begin(), found.end(), &*next) != found.end()) ++next;
    port = &*next;
  }
  return found;
}

std::string why_fewer(const Hello& hello, const Nodes& nodes, const Usual& usual) {
  const auto same = std::count_if(nodes.begin(), nodes.end(), [&hello](const auto& entry) {
    return entry.second->rdma_ports.size() == hello.rdma_ports.size();
  });
  return sign_of_another_kind({.processors = hello.processors,
                               .usual_processors = usual.processors,
                               .as_few = static_cast<std::size_t>(same),
                               .nodes = nodes.size()});
}

Finding fewer_ports(const std::string& node, const Hello& hello, const Nodes& nodes,
                    const Usual& usual) {
  const bool most = 2 * usual.nodes > nodes.size();
  const std::string another_kind = why_fewer(hello, nodes, usual);
  const auto found = ports_by_rail(hello.rdma_ports, usual.ports);
  std::vector<std::string> missing;
  for (std::size_t rail = 0; rail < found.size(); ++rail) {
    if (found[rail] == nullptr) missing.push_back(usual.ports[rail].name);
  }
  std::vector<std::string> evidence{fmt::format("without {}", short_list(missing))};
  if (!hello.rdma_untested.empty()) evidence.push_back(hello.rdma_untested);
  if (!another_kind.empty()) evidence.push_back(another_kind);
  return {.check = "verbs.ports",
          .severity = most && another_kind.empty() ? Severity::critical : Severity::warning,
          .node = node,
          .value = static_cast<double>(hello.rdma_ports.size()),
          .unit = fmt::format("of {} compute ports", usual.ports.size()),
          .expected = usual.nodes == 0
                          ? fmt::format("{}, because other nodes have these", usual.ports.size())
                          : fmt::format("{}, as on {}", usual.ports.size(),
                                        most ? "most nodes" : "other nodes"),
          .rule = "the nodes are alike",
          .evidence = fmt::format("{}", fmt::join(evidence, "; ")),
          .action = "see `ddp-check node`, ibstat and lspci on this node"};
}

// What is unusual about the ports of a node, but no problem; empty if nothing is.
std::string note_about(const std::string& node, const Hello& hello, const Usual& usual) {
  const auto found = ports_by_rail(hello.rdma_ports, usual.ports);
  if (std::all_of(found.begin(), found.end(), [](const auto* port) { return port == nullptr; })) {
    return fmt::format(
        "RDMA was not tested on {}: its compute ports {} are none of those that "
        "most nodes have",
        node, short_list(names_of(hello.rdma_ports)));
  }
  std::vector<std::string> others;
  for (std::size_t rail = 0; rail < found.size(); ++rail) {
    if (found[rail] == nullptr || found[rail]->name == usual.ports[rail].name) continue;
    others.push_back(fmt::format("{} is {}", usual.ports[rail].name, found[rail]->name));
  }
  if (!others.empty()) {
    return fmt::format("compute ports have other names on {}: {}", node,
                       short_list(others, kMaxOtherNames, ", "));
  }
  if (hello.rdma_ports.size() <= usual.ports.size()) return {};
  return fmt::format("{} has {} compute ports, and most nodes {}: the others were not tested", node,
                     hello.rdma_ports.size(), usual.ports.size());
}

void add_notes(const Nodes& nodes, const Usual& usual, std::vector<std::string>& notes) {
  std::size_t more = 0;
  for (const auto& [node, hello] : nodes) {
    std::string note = note_about(node, *hello, usual);
    if (note.empty()) continue;
    if (notes.size() < kMaxNotes) {
      notes.push_back(std::move(note));
    } else {
      ++more;
    }
  }
  if (more == 0) return;
  notes.push_back(fmt::format("compute ports of {} differ from those of most nodes",
                              counted(more, "more node")));
}

}  // namespace

RdmaRails find_rdma_rails(const std::map<int, Hello>& present) {
  Nodes nodes;
  for (const auto& [rank, hello] : present) {
    if (!hello.rdma_ports.empty()) nodes.emplace(hello.node, &hello);
  }
  RdmaRails result;
  if (nodes.size() < 2) return result;
  const Usual usual = usual_ports(nodes);
  for (const auto& port : usual.ports) result.rails.push_back({port.name, {}});
  for (const auto& [node, hello] : nodes) {
    const auto found = ports_by_rail(hello->rdma_ports, usual.ports);
    for (std::size_t rail = 0; rail < found.size(); ++rail) {
      if (found[rail] != nullptr) result.rails[rail].ports[node] = *found[rail];
    }
    if (hello->rdma_ports.size() >= usual.ports.size()) continue;
    result.findings.push_back(fewer_ports(node, *hello, nodes, usual));
  }
  add_notes(nodes, usual, result.notes);
  if (result.findings.empty()) {
    result.findings.push_back(
        {.check = "verbs.ports",
         .severity = Severity::ok,
         .value = static_cast<double>(usual.ports.size()),
         .unit = "compute ports",
         .rule = "the nodes are alike",
         .evidence = fmt::format("{}", fmt::join(names_of(usual.ports), " "))});
  }
  return result;
}

std::optional<double> rate_of(const RdmaRail& rail) {
  if (rail.ports.empty()) return std::nullopt;
  const auto rate = rail.ports.begin()->second.bytes_per_second;
  const bool same = std::all_of(rail.ports.begin(), rail.ports.end(), [&rate](const auto& entry) {
    return entry.second.bytes_per_second == rate;
  });
  return same ? rate : std::nullopt;
}

}  // namespace ddp::check
