// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/more_paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/text.h"
#include "ddp_runtime/check/net/device_plan.h"
#include "ddp_runtime/check/net/path_measurements.h"
#include "ddp_runtime/check/net/rail_speeds.h"
#include "ddp_runtime/check/net/rails.h"
#include "ddp_runtime/check/net/rdma_rails.h"

namespace ddp::check {
namespace {

void add_notes(NetState& state, const std::vector<std::string>& notes) {
  state.verdict.notes.insert(state.verdict.notes.end(), notes.begin(), notes.end());
}

// Returns whether there is a pair to measure.
bool accept(NetState& state, const DevicePlan& plan) {
  state.verdict.findings.add(plan.findings);
  add_notes(state, plan.notes);
  return plan.nodes >= 2;
}

// "auto" selects physical ports that all nodes have under the same name and at the same speed,
// because a slower port is assumed to be for management.
std::vector<std::string> rails_to_measure(const NetState& state) {
  auto rails = state.options.rails;
  if (rails == std::vector<std::string>{"auto"}) return alike_rails(state.leader.present());
  for (auto& rail : rails) rail = sanitize(rail);  // as the names in the tasks' messages
  return rails;
}

// The results of all rails of RDMA.
struct RdmaMeasured {
  std::vector<PairsMeasured> rails;
  std::vector<RailSpeed> speeds;
  std::vector<PairResult> exchanges;
  std::map<std::string, std::vector<std::string>> skipped;  // names of rails, by the reason
};

void measure_rdma_rail(NetState& state, const RdmaRail& rail, bool few_rounds, RdmaMeasured& all) {
  PathMeasured measured = measure_path(
      state, {TransportKind::verbs, "verbs", "RDMA", rail.name, rail.ports, few_rounds});
  if (!measured.skipped.empty()) {
    all.skipped[measured.skipped].push_back(rail.name);
    return;
  }
  all.rails.push_back(std::move(measured.pairs));
  const auto& results = all.rails.back().results;
  all.speeds.push_back({rail.name, rate_of(rail), summarize(results)});
  all.exchanges.insert(all.exchanges.end(), results.begin(), results.end());
}

}  // namespace

void measure_rails(NetState& state) {
  for (const auto& rail : rails_to_measure(state)) {
    state.verdict.findings.add(evaluate_rail(rail, state.leader.present()));
    measure_pairs(state, {TransportKind::tcp, "tcp_" + rail, "TCP over " + rail, rail});
  }
}

void measure_rdma(NetState& state) {
  const RdmaRails found = find_rdma_rails(state.leader.present());
  state.verdict.findings.add(found.findings);
  add_notes(state, found.notes);
  if (!accept(state, plan_rdma(state.leader.present(), state.options.missing_tool))) return;
  RdmaMeasured all;
  for (const auto& rail : found.rails) measure_rdma_rail(state, rail, found.rails.size() > 1, all);
  for (const auto& [reason, rails] : all.skipped) {
    add_skipped(state, fmt::format("RDMA over {}", fmt::join(rails, " ")), reason);
  }
  add_figures(state, "verbs", summarize(all.exchanges));
  state.summary += rail_speeds_text(all.speeds);
  add_limit(state, "verbs", all.rails);
  state.verdict.findings.add(evaluate_rail_speeds(all.speeds));
}

void measure_nccl(NetState& state) {
  if (!accept(state, plan_nccl(state.leader.present(), state.options.missing_tool))) return;
  measure_pairs(state, {TransportKind::nccl, "nccl", "NCCL"});
}

}  // namespace ddp::check
