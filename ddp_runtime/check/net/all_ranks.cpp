// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/all_ranks.h"

#include <utility>

#include "ddp_runtime/check/net/collective_stage.h"
#include "ddp_runtime/check/net/conclusion.h"
#include "ddp_runtime/check/net/join_tasks.h"
#include "ddp_runtime/check/net/path_measurements.h"

namespace ddp::check {
namespace {

void add_collectives(NetState& state, TransportKind over) {
  const NetOptions& options = state.options;
  CollectivesMeasured measured =
      measure_collectives(state.leader,
                          {options.step.size, options.seed, options.pair_limit,
                           options.fewest_bus_bytes_per_second, over, state.pairs[over]},
                          options.progress);
  Verdict& verdict = state.verdict;
  verdict.findings.add(std::move(measured.findings));
  verdict.figures.insert(verdict.figures.end(), measured.figures.begin(), measured.figures.end());
  verdict.measurements.update(measured.measurements);
  state.summary += measured.words;
}

void leave(NetState& state, const std::string& during) {
  if (!state.leader.all_reachable()) return;
  state.leader.ask_all({{"do", "leave_world"}}, during, state.options.join_limit);
}

void measure_over_tcp(NetState& state) {
  const NetOptions& options = state.options;
  options.progress("connecting all tasks over TCP");
  auto failures = connect_over_tcp(state.leader, options.join_limit, options.pair_limit);
  if (!failures.empty()) return state.verdict.findings.add(std::move(failures));
  add_collectives(state, TransportKind::tcp);
  leave(state, "ending the connections");
}

void measure_over_mpi(NetState& state) {
  const NetOptions& options = state.options;
  options.keep(interim_verdict(state));
  options.progress("starting MPI");
  auto failures = start_mpi(state.leader, options.join_limit, options.pair_limit);
  if (!failures.empty()) return state.verdict.findings.add(std::move(failures));
  const auto broken = measure_pairs(state, {TransportKind::mpi, "mpi", "MPI"});
  if (broken.empty()) {
    add_collectives(state, TransportKind::mpi);
  } else {
    state.verdict.findings.add(
        not_run(TransportKind::mpi,
                "stopped early, because MPI cannot continue after an error: " + broken));
  }
  leave(state, "leaving MPI");
}

}  // namespace

void measure_ranks(NetState& state) {
  const auto why_tcp = reason_for_tcp();
  if (why_tcp) state.verdict.findings.add(mpi_not_used(*why_tcp));
  const auto expected = static_cast<std::size_t>(state.options.step.size);
  if (state.leader.present().size() < expected || !state.leader.all_reachable()) {
    state.verdict.findings.add(
        not_run(why_tcp ? TransportKind::tcp : TransportKind::mpi,
                "not run: all tasks take part, and some are missing or silent"));
  } else if (why_tcp) {
    measure_over_tcp(state);
  } else {
    measure_over_mpi(state);
  }
}

}  // namespace ddp::check
