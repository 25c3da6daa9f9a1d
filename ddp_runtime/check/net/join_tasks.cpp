// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/join_tasks.h"

#include <fmt/format.h>

#include <cstdlib>

#include "ddp_runtime/comm/transport/mpi/process_manager.h"
#include "ddp_runtime/comm/transport/tcp/tcp_plan.h"

namespace ddp::check {
namespace {

std::string first_error(const ByRank& answers) {
  for (const auto& [rank, answer] : answers) {
    if (answer.contains("error")) return answer.at("error");
  }
  return {};
}

// Returns what happened if not all tasks are connected.
std::vector<Finding> evaluate_join(const Leader& leader, const ByRank& answers, TransportKind over,
                                   std::chrono::milliseconds limit) {
  const std::size_t tasks = leader.present().size();
  const std::string error = first_error(answers);
  if (error.empty() && answers.size() == tasks) return {};
  const bool mpi = over == TransportKind::mpi;
  const std::string kind = name_of(over);
  Finding finding{
      .check = kind + ".join",
      .severity = Severity::critical,
      .value = "failed",
      .expected = mpi ? "one MPI world of all tasks" : "connections of all tasks",
      .rule = title_of(over) + " connects all tasks of the step",
      .evidence = error,
      .action = mpi ? "start the step with `srun --mpi=pmix`, or skip the MPI tests with --no-mpi"
                    : "look for a firewall between the nodes"};
  if (error.empty()) {
    finding.value = fmt::format("{} of {} tasks joined", answers.size(), tasks);
    finding.evidence = fmt::format("no result within {:g} s; TCP between the nodes works{}",
                                   std::chrono::duration<double>(limit).count(),
                                   mpi ? ", so check the MPI library's choice of network" : "");
  }
  std::vector<Finding> findings;
  // A task that was lost during the start has its own finding.
  if (leader.all_reachable() || !error.empty()) findings.push_back(finding);
  findings.push_back(not_run(over, "not run: the tasks are not connected"));
  return findings;
}

}  // namespace

std::optional<std::string> reason_for_tcp() {
  if (!comm::tcp_plan(getenv, std::nullopt)) return std::nullopt;
  return comm::missing_process_manager(getenv, comm::pmi_support_of_mpi());
}

Finding mpi_not_used(const std::string& why) {
  return {.check = "mpi.pairs",
          .severity = Severity::ok,
          .value = "not used",
          .rule = "MPI is measured if it connects the tasks; else ranks connect over TCP",
          .evidence = why};
}

Finding not_run(TransportKind over, const std::string& why) {
  const bool mpi = over == TransportKind::mpi;
  return {
      .check = mpi ? "mpi.pairs" : "tcp.collectives",
      .severity = Severity::unknown,
      .rule = mpi ? "MPI is measured between all nodes" : "collectives of all tasks are measured",
      .evidence = why,
      .action = "fix the other findings and rerun"};
}

std::vector<Finding> start_mpi(Leader& leader, std::chrono::milliseconds limit,
                               std::chrono::milliseconds timeout) {
  ByRank answers = leader.ask_all({{"do", "start_mpi"}}, "the start of MPI", limit);
  if (leader.all_reachable() && answers.size() == leader.present().size()) {
    const nlohmann::json command{{"do", "join_world"}, {"limit_ms", timeout.count()}};
    answers = leader.ask_all(command, "the start of MPI", limit);
  }
  return evaluate_join(leader, answers, TransportKind::mpi, limit);
}

std::vector<Finding> connect_over_tcp(Leader& leader, std::chrono::milliseconds limit,
                                      std::chrono::milliseconds timeout) {
  const std::string during = "connecting all tasks over TCP";
  ByRank answers = leader.ask({{0, {{"do", "listen_for_ranks"}}}}, during, limit);
  if (leader.all_reachable() && answers.contains(0) && answers.at(0).contains("port")) {
    const nlohmann::json command{
        {"do", "connect_ranks"}, {"port", answers.at(0).at("port")}, {"limit_ms", timeout.count()}};
    answers = leader.ask_all(command, during, limit);
  }
  return evaluate_join(leader, answers, TransportKind::tcp, limit);
}

}  // namespace ddp::check
