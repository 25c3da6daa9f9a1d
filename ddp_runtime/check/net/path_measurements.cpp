// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/path_measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/net/carriers.h"
#include "ddp_runtime/check/net/measurements.h"
#include "ddp_runtime/check/net/pair_stage.h"

namespace ddp::check {
namespace {

constexpr std::uint64_t kExchangesOfAPath = 1'000'000;
constexpr int kRoundsOfARail = 3;

// With several RDMA ports, each is measured in few rounds, even if all pairs would be possible: a
// round takes seconds, and there may be many ports. Each of them has other pairs.
int rounds_on(const NetPath& path, const NetOptions& options) {
  return options.rounds == 0 && path.few_rounds ? kRoundsOfARail : options.rounds;
}

// Numbers of exchanges are unique. If the user gave one rate for all links, all nodes are in one
// class.
PairStageOptions stage_options(NetState& state, const NetPath& path,
                               const std::vector<NodeEntry>& nodes) {
  const NetOptions& options = state.options;
  const std::uint64_t seed =
      options.seed + std::exchange(state.first_of_path, state.first_of_path + kExchangesOfAPath);
  return {
      path.stage,
      options.bytes,
      options.pair_limit,
      options.grace,
      seed,
      options.rules.peers,
      rounds_on(path, options),
      path.rail,
      options.link_bytes_per_second ? Classes{} : classes_on(path, nodes, state.leader.present()),
      path.ports};
}

PairsMeasured measured_by(PairStageResult&& stage, const NetState& state, const NetPath& path,
                          const std::vector<NodeEntry>& nodes, const Classes& classes) {
  PairsMeasured measured;
  measured.kind = path.stage == TransportKind::tcp ? "tcp" : path.kind;
  measured.rail = path.rail;
  for (const auto& [node, port] : path.ports) measured.own_rails[node] = port.name;
  measured.nodes = names_of(nodes);
  measured.results = std::move(stage.results);
  measured.retests = std::move(stage.retests);
  measured.classes = classes;
  for (const auto& node : nodes) {
    const int rank = node.ranks.front();
    const bool answers = state.leader.reachable(rank);
    // If the stage stopped early, unmeasured nodes do not get their own findings.
    measured.already_flagged.push_back(!answers || !stage.broken.empty());
    measured.link_rate.push_back(!answers ? std::nullopt
                                 : state.options.link_bytes_per_second
                                     ? state.options.link_bytes_per_second
                                     : link_rate_on(path, state.leader.present().at(rank)));
  }
  return measured;
}

std::size_t nodes_with_slower_links(const Classes& classes) {
  return static_cast<std::size_t>(std::count_if(classes.begin(), classes.end(), [&](int number) {
    return number < *std::max_element(classes.begin(), classes.end());
  }));
}

// The basis for judging the collectives over the same transport. The user's thresholds must not
// affect it.
PairBasis basis_of(const PairsMeasured& measured, const NetState& state) {
  const PeerRule defaults;
  PairBasis basis = pair_basis_of(measured.results);
  basis.processors_shared = processors_shared(state.leader.present());
  basis.noisy = detection_limit_of(measured, defaults).value_or(0) > defaults.coarsest();
  return basis;
}

}  // namespace

PathMeasured measure_path(NetState& state, const NetPath& path) {
  const auto before = ask_traffic(state);  // finds nodes that died since the last stage
  const auto nodes = nodes_with(path, answering_nodes(state), state.leader.present());
  if (nodes.size() < 2) {
    add_measurements(state, path.kind, path, nlohmann::json::array());
    return {.skipped = reason_for_no_pair(nodes)};
  }
  const PairStageOptions options = stage_options(state, path, nodes);
  auto stage = run_pair_stage(state.leader, nodes, options, state.options.progress);
  PathMeasured result;
  result.broken = stage.broken;
  result.pairs = measured_by(std::move(stage), state, path, nodes, options.classes);
  const PairsMeasured& measured = result.pairs;
  state.verdict.findings.add(evaluate_pairs(measured, state.options.rules));
  add_measurements(state, path.kind, path, to_json(measured.results, measured.nodes));
  add_measurements(state, path.kind + "_retests", path,
                   to_json(measured.retests, measured.nodes, state.options.rules.peers));
  result.carriers = report_carriers(state, path, before);
  return result;
}

std::string measure_pairs(NetState& state, const NetPath& path) {
  const PathMeasured result = measure_path(state, path);
  if (!result.skipped.empty()) {
    add_skipped(state, path.title, result.skipped);
    return {};
  }
  const PairSummary summary = summarize(result.pairs.results);
  add_figures(state, path.kind, summary);
  if (summary.exchanges > 0) {
    state.summary += fmt::format("; {} {:.3g} GB/s (lowest {:.3g})", path.title,
                                 summary.median_per_second / kGB, summary.lowest_per_second / kGB);
  }
  state.summary += result.carriers;
  add_limit(state, path.kind, {result.pairs});
  if (path.rail.empty()) state.pairs[path.stage] = basis_of(result.pairs, state);
  return result.broken;
}

void add_skipped(NetState& state, const std::string& title, const std::string& skipped) {
  state.verdict.notes.push_back(fmt::format("{} was not tested: {}", title, skipped));
}

void add_figures(NetState& state, const std::string& kind, const PairSummary& summary) {
  if (summary.exchanges == 0) return;
  auto& figures = state.verdict.figures;
  figures.emplace_back(kind + "_GBps", summary.median_per_second / kGB);
  figures.emplace_back(kind + "_min_GBps", summary.lowest_per_second / kGB);
  figures.emplace_back(kind + "_latency_us", summary.latency_seconds / kMicrosecond);
}

void add_limit(NetState& state, const std::string& kind,
               const std::vector<PairsMeasured>& measured) {
  std::optional<double> limit;
  std::size_t slower = 0;
  for (const auto& rail : measured) {
    const auto own = detection_limit_of(rail, state.options.rules.peers);
    if (own) limit = std::max(limit.value_or(0), *own);
    slower = std::max(slower, nodes_with_slower_links(rail.classes));
  }
  if (!limit) return;
  state.verdict.figures.emplace_back(kind + "_detection_limit_percent", 100 * *limit);
  state.summary += fmt::format(", a node {:.0f} % slower would have been detected", 100 * *limit);
  if (slower > 0) {
    state.summary +=
        fmt::format(", {} with slower links compared among themselves", counted(slower, "node"));
  }
}

void add_measurements(NetState& state, const std::string& name, const NetPath& path,
                      nlohmann::json list) {
  nlohmann::json& all = state.verdict.measurements[name];
  if (all.is_null()) all = nlohmann::json::array();
  for (auto& entry : list) {
    if (path.stage == TransportKind::verbs) entry["rail"] = path.rail;
    all.push_back(std::move(entry));
  }
}

}  // namespace ddp::check
