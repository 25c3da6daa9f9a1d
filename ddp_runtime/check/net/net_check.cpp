// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/net_check.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "ddp_runtime/check/net/all_ranks.h"
#include "ddp_runtime/check/net/conclusion.h"
#include "ddp_runtime/check/net/evaluate/evaluate_drift.h"
#include "ddp_runtime/check/net/evaluate/evaluate_membership.h"
#include "ddp_runtime/check/net/evaluate/evaluate_names.h"
#include "ddp_runtime/check/net/more_paths.h"
#include "ddp_runtime/check/net/path_measurements.h"
#include "ddp_runtime/check/net/path_stage.h"

namespace ddp::check {
namespace {

// Limit on the names that every node resolves, to limit the load on the name servers.
constexpr std::size_t kMaxNames = 64;
constexpr std::chrono::milliseconds kNameTimeout{5000};

void call_roll(NetState& state) {
  Leader& leader = state.leader;
  const NetOptions& options = state.options;
  Verdict& verdict = state.verdict;
  leader.roll_call(options.step.size, Clock::now() + options.deadline, options.progress);
  state.nodes = node_table(options.step, leader.present());
  verdict.nodes = names_of(state.nodes);
  verdict.findings.add(
      evaluate_roll_call(options.step, leader.present(), options.deadline, leader.refusals()));
  if (!options.step.pretended) {
    verdict.findings.add(evaluate_reports(options.step, leader.present()));
  }
  verdict.findings.add(evaluate_known_bad(options.known_bad, verdict.nodes));
  verdict.measurements["seed"] = options.seed;
  if (static_cast<int>(state.nodes.size()) > kMaxNodesForAllPairs) {
    options.progress(fmt::format("random pairs with --seed {}", options.seed));
  }
  verdict.figures = {{"nodes", static_cast<double>(state.nodes.size())},
                     {"tasks", static_cast<double>(leader.present().size())}};
}

void ask_names(NetState& state) {
  if (state.options.step.pretended) return;
  std::vector<std::string> names = state.verdict.nodes;
  if (names.size() > kMaxNames) names.resize(kMaxNames);
  ByRank commands;
  for (const auto& node : answering_nodes(state)) {
    commands[node.ranks.front()] = {{"do", "resolve"}, {"names", names}};
  }
  state.options.progress("resolving node names");
  Resolutions resolutions;
  for (const auto& [rank, answer] : state.leader.ask(commands, "name resolution", kNameTimeout)) {
    if (!answer.contains("addresses")) continue;
    resolutions[state.leader.present().at(rank).node] =
        answer.at("addresses").get<std::map<std::string, std::vector<std::string>>>();
  }
  state.verdict.findings.add(evaluate_names(resolutions));
}

void probe_packet_sizes(NetState& state) {
  state.options.progress("probing packet sizes");
  const auto nodes = answering_nodes(state);
  const auto probe = [&](std::uint64_t seed) {
    return probe_paths(state.leader, nodes, seed, state.options.step.pretended);
  };
  const auto suspended_before = state.leader.suspended();
  auto results = probe(state.options.seed);
  // Datagrams for rank 0 were lost meanwhile.
  if (state.leader.suspended() != suspended_before) results = probe(state.options.seed + 1);
  if (!results.empty()) state.verdict.findings.add(evaluate_paths(names_of(nodes), results));
}

void add_counters(NetState& state, const Hello& hello, const Counters& after) {
  const auto& devices = state.used[hello.node];
  for (auto& finding :
       evaluate_counters(counters_of(hello.counters, devices), counters_of(after, devices),
                         "net.counters", "during the check")) {
    finding.node = hello.node;
    state.verdict.findings.add(std::move(finding));
  }
}

void final_checks(NetState& state) {
  ClockOffsets offsets;
  offsets.first = state.leader.clock_offsets();
  const nlohmann::json command{{"do", "final_checks"}};
  for (const auto& [rank, answer] : state.leader.ask_all(command, "the end", state.options.grace)) {
    if (!answer.contains("unix_time") || !answer.contains("counters")) continue;
    offsets.last[rank] =
        answer.at("unix_time").get<double>() - answer.at("arrival_time").get<double>();
    add_counters(state, state.leader.present().at(rank), answer.at("counters").get<Counters>());
  }
  // A suspended leader reads the tasks' times too late.
  if (state.leader.suspended() == Clock::duration::zero()) {
    state.verdict.findings.add(evaluate_clocks(offsets, state.leader.present()));
  }
}

}  // namespace

Verdict check_net(Leader& leader, const NetOptions& options) {
  NetState state{leader, options};
  state.verdict.command = "net";
  call_roll(state);
  if (answering_nodes(state).size() < 2) {
    state.verdict.findings.add(evaluate_no_pair(options.step));
  } else {
    ask_names(state);
    probe_packet_sizes(state);
    measure_pairs(state, {TransportKind::tcp, "tcp", "TCP"});
    measure_rails(state);
    if (options.verbs) measure_rdma(state);
    if (options.nccl) measure_nccl(state);
    if (options.mpi) measure_ranks(state);
  }
  final_checks(state);
  return concluded(state);
}

}  // namespace ddp::check
