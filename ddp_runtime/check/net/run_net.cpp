// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/run_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/check/findings/operations.h"
#include "ddp_runtime/check/net/locate/pair_schedule.h"
#include "ddp_runtime/check/net/net_check.h"
#include "ddp_runtime/check/net/step/agent.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {
namespace {

// Added to the longest stage, because an agent may wait for a whole stage between two messages.
constexpr std::chrono::seconds kSilenceMargin{30};

void require_known_nodes(const NetOptions& options) {
  const auto& nodes = options.step.nodes;
  if (nodes.empty()) return;  // the launcher did not list the nodes
  std::vector<std::string> names;
  for (const auto& injection : options.injections) {
    names.push_back(injection.node);
    if (!injection.peer.empty()) names.push_back(injection.peer);
  }
  for (const auto& name : names) {
    const auto is_it = [&name](const ExpectedNode& node) { return node.name == name; };
    if (std::any_of(nodes.begin(), nodes.end(), is_it)) continue;
    throw UsageError(fmt::format(
        "--inject names the node '{}', which is not a node of this step; the first node is '{}'",
        name, nodes.front().name));
  }
}

AgentOptions agent_options(const NetOptions& options, std::uint16_t leader_port) {
  AgentOptions agent;
  agent.step = options.step;
  agent.program = options.program;
  agent.host = options.host;
  agent.rdma = options.rdma;
  agent.nccl = options.nccl_tool;
  agent.injections = options.injections;
  agent.deadline = options.deadline;
  agent.silence = options.deadline + options.join_limit + 8 * options.pair_limit + kSilenceMargin;
  agent.leaders_own = options.step.rank == 0;
  agent.leader_port = leader_port;
  agent.secret = options.secret;
  return agent;
}

// Simulates a missing node: the task does not report, and exits when the check has finished. It
// must not exit earlier, because launchers terminate the whole step when its first task exits.
void stay_away(const NetOptions& options) {
  std::this_thread::sleep_for(options.deadline);
  const Deadline end = Clock::now() + agent_options(options, 0).silence;
  try {
    while (Clock::now() < end) {
      connect_to(options.step.leader_host, options.step.leader_port, Clock::now() + options.grace);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  } catch (const NetError&) {
    return;  // the leader no longer listens
  }
}

// Publishes the verdict, then shuts down all tasks with it. Why that failed is told before: mpirun
// ends this task as soon as another one has exited with the status.
NetOutcome conclude(Leader& leader, const NetOptions& options) {
  NetOutcome outcome;
  try {
    Verdict verdict = check_net(leader, options);
    verdict.findings.add(evaluate_choice(choose_nodes(verdict, options.wanted)));
    outcome.exit_code = exit_code_of(verdict.severity());
    options.publish(verdict);
  } catch (const std::exception& error) {
    outcome.exit_code = exit_code_of(Severity::unknown);
    options.progress(error.what());
  }
  leader.shut_down({{"do", "verdict"}, {"exit_code", outcome.exit_code}});
  return outcome;
}

// The verdict if the leader could not open its port.
Verdict verdict_without_port(const NetOptions& options, const std::string& why) {
  Verdict verdict;
  verdict.command = "net";
  verdict.nodes = names_of(node_table(options.step, {}));
  verdict.findings.add(
      Finding{.check = "net.leader_port",
              .severity = Severity::critical,
              .device = fmt::format("port {}", options.step.leader_port),
              .value = "in use",
              .expected = "a free port on rank 0's node",
              .rule = "the leader listens on the port that rank 0 of the training will use",
              .evidence = fmt::format("{}: {}", options.step.node, why),
              .action = "stop the process that listens on it, or choose another port with --port "
                        "or MASTER_PORT"});
  return verdict;
}

NetOutcome run_leader(NetOptions options) {
  if (options.seed == 0) options.seed = seed_for(options.step.identity);
  Listener listener;
  try {
    listener = listen_on(options.step.leader_port);
  } catch (const NetError& error) {
    const Verdict verdict = verdict_without_port(options, error.what());
    options.publish(verdict);
    return {exit_code_of(verdict.severity())};
  }
  const std::uint16_t port = listener.port;
  options.progress(fmt::format("waiting for {} tasks on port {}", options.step.size, port));
  Leader leader(std::move(listener), options.program, options.step, options.secret, options.grace);
  AgentOutcome own;
  std::thread agent([&own, agent = agent_options(options, port)] { own = run_agent(agent); });
  NetOutcome outcome = conclude(leader, options);
  agent.join();
  outcome.left_behind = own.left_behind;
  return outcome;
}

}  // namespace

NetOutcome run_net(const NetOptions& options) {
  require_known_nodes(options);
  if (faults_of(options.step.node, options.injections).missing) {
    stay_away(options);
    return {exit_code_of(Severity::critical)};
  }
  if (options.step.rank == 0) return run_leader(options);
  const AgentOutcome outcome = run_agent(agent_options(options, options.step.leader_port));
  return {outcome.exit_code, outcome.complaint, outcome.left_behind};
}

}  // namespace ddp::check
