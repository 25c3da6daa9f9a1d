// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/mpi_start.h"

#include <fmt/format.h>

#include <cstdlib>

#include "ddp_runtime/comm/mpi/process_manager.h"
#include "ddp_runtime/comm/tcp/tcp_plan.h"

namespace ddp::check {
namespace {

std::string first_error(const ByRank& answers) {
  for (const auto& [rank, answer] : answers) {
    if (answer.contains("error")) return answer.at("error");
  }
  return {};
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

Finding mpi_not_run(const std::string& why) {
  return {.check = "mpi.pairs",
          .severity = Severity::unknown,
          .rule = "MPI is measured between all nodes",
          .evidence = why,
          .action = "fix the other findings and rerun"};
}

std::vector<Finding> start_mpi(Leader& leader, std::chrono::milliseconds limit,
                               std::chrono::milliseconds timeout) {
  const std::size_t tasks = leader.present().size();
  ByRank answers = leader.ask_all({{"do", "start_mpi"}}, "the start of MPI", limit);
  if (leader.all_reachable() && answers.size() == tasks) {
    const nlohmann::json command{{"do", "join_world"}, {"limit_ms", timeout.count()}};
    answers = leader.ask_all(command, "the start of MPI", limit);
  }
  const std::string error = first_error(answers);
  if (error.empty() && answers.size() == tasks) return {};
  Finding finding{
      .check = "mpi.join",
      .severity = Severity::critical,
      .value = "failed",
      .expected = "one MPI world of all tasks",
      .rule = "MPI connects all tasks of the step",
      .evidence = error,
      .action = "start the step with `srun --mpi=pmix`, or skip the MPI tests with --no-mpi"};
  if (error.empty()) {
    finding.value = fmt::format("{} of {} tasks joined", answers.size(), tasks);
    finding.evidence = fmt::format(
        "no result within {:g} s; TCP between the nodes works, so check the MPI library's choice "
        "of network",
        std::chrono::duration<double>(limit).count());
  }
  std::vector<Finding> findings;
  // A task that was lost during the start has its own finding.
  if (leader.all_reachable() || !error.empty()) findings.push_back(finding);
  findings.push_back(mpi_not_run("not run: MPI did not start"));
  return findings;
}

}  // namespace ddp::check
