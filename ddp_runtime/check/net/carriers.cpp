// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/carriers.h"

#include <utility>

#include "ddp_runtime/check/net/path_measurements.h"

namespace ddp::check {

TrafficByNode ask_traffic(const NetState& state) {
  ByRank commands;
  for (const auto& node : answering_nodes(state)) {
    commands[node.ranks.front()] = {{"do", "transport"}};
  }
  TrafficByNode answers;
  for (const auto& [rank, answer] :
       state.leader.ask(commands, "reading interface counters", state.options.grace)) {
    if (!answer.contains("traffic") || !answer.contains("modules")) continue;
    answers[state.leader.present().at(rank).node] = {answer.at("traffic").get<Traffic>(),
                                                     answer.at("modules").get<std::string>()};
  }
  return answers;
}

std::string report_carriers(NetState& state, const NetPath& path, const TrafficByNode& before) {
  Transports transports;
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [node, after] : ask_traffic(state)) {
    const auto earlier = before.find(node);
    if (earlier == before.end()) continue;
    NodeTransport transport{carriers(earlier->second.traffic, after.traffic),
                            path.stage == TransportKind::mpi ? after.modules : ""};
    state.used[node].insert(transport.carriers.begin(), transport.carriers.end());
    list.push_back(
        {{"node", node}, {"devices", transport.carriers}, {"modules", transport.modules}});
    transports[node] = std::move(transport);
  }
  add_measurements(state, path.kind + "_transport", path, std::move(list));
  // The port of RDMA is chosen by its name, so its data cannot stray.
  const bool may_stray = path.stage == TransportKind::tcp;
  auto findings =
      evaluate_transport(may_stray ? "tcp" : path.kind, transports, may_stray ? path.rail : "");
  for (auto& finding : findings) finding.device = path.rail;
  state.verdict.findings.add(std::move(findings));
  return transports.empty() ? "" : " through " + carriers_text(transports);
}

}  // namespace ddp::check
