// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/conclusion.h"

#include <fmt/format.h>

#include <chrono>

#include "base/text.h"
#include "ddp_runtime/check/net/evaluate/evaluate_drift.h"
#include "ddp_runtime/check/net/evaluate/evaluate_leaves.h"
#include "ddp_runtime/check/net/evaluate/evaluate_membership.h"

namespace ddp::check {
namespace {

std::string summary_line(const NetState& state) {
  const std::size_t nodes = state.nodes.size();
  std::string text = fmt::format("{}, {}{}", counted(nodes, "node"),
                                 counted(state.leader.present().size(), "task"), state.summary);
  if (nodes == 1) {
    return text + "; a job of one node uses no network between nodes, so no network was measured";
  }
  if (nodes < kMinPeers) {
    text += fmt::format(
        "; {} nodes are too few to compare with each other: reachability and data were checked, "
        "but speed was not; slow nodes can be found with at least {} nodes, or with --expect-gbps",
        nodes, kMinPeers);
  }
  return text;
}

}  // namespace

Verdict concluded(const NetState& state) {
  const Leader& leader = state.leader;
  Verdict verdict = state.verdict;
  verdict.findings.add(evaluate_drift(leader.present()));
  verdict.findings.add(evaluate_lost(state.options.step, state.nodes, leader.lost()));
  verdict.findings.add(
      evaluate_suspension(std::chrono::duration<double>(leader.suspended()).count()));
  verdict.findings.add(evaluate_leaves(verdict.findings, leaves_of(leader.present())));
  verdict.summary = summary_line(state);
  return verdict;
}

Verdict interim_verdict(const NetState& state) {
  Verdict verdict = concluded(state);
  verdict.finished = false;
  verdict.findings.add(Finding{
      .check = "net.finished",
      .severity = Severity::unknown,
      .value = "no",
      .expected = "yes",
      .rule = "the check runs to completion",
      .evidence = "it was terminated while MPI was running; these are the results up to that point",
      .action = "look for a node that vanished meanwhile, or rerun with --no-mpi"});
  return verdict;
}

}  // namespace ddp::check
