// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/job_step.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/errors.h"
#include "base/hostlist.h"
#include "base/text.h"
#include "spank_plugin/launch/plan/leader.h"
#include "spank_plugin/launch/plan/master_port.h"
#include "spank_plugin/launch/step/facts.h"

namespace ddp::check {
namespace {

launch::Facts read_facts(const Environment& environment, const std::string& host_name) {
  switch (launch::detect_launcher(environment)) {
    case launch::Launcher::open_mpi:
      return launch::read_open_mpi(environment, host_name);
    case launch::Launcher::slurm: {
      launch::Facts facts;
      facts.step = launch::read_slurm_step(environment);
      facts.task = launch::read_slurm_task(environment, facts.step);
      return facts;
    }
    case launch::Launcher::none:
      break;
  }
  return launch::single_process(environment, host_name, static_cast<std::uint32_t>(getpid()));
}

std::vector<ExpectedNode> expected_nodes(const launch::StepFacts& step) {
  std::vector<ExpectedNode> nodes;
  for (std::size_t i = 0; i < step.nodes.size(); ++i) {
    const auto tasks = step.tasks_per_node ? step.tasks_per_node->at(static_cast<std::uint32_t>(i))
                                           : step.task_count;  // in a step of one node
    nodes.push_back({step.nodes[i], static_cast<int>(tasks)});
  }
  return nodes;
}

std::string node_of(const launch::Facts& facts) {
  const auto& task = facts.task;
  if (!task.node_name.empty() || !task.node_rank) return task.node_name;
  return facts.step.nodes.at(*task.node_rank);
}

std::string leader_host(const Environment& environment, const launch::StepFacts& step) {
  const auto given = environment("MASTER_ADDR");
  if (given && !given->empty()) return *given;
  // A step of one node does not need a name service.
  return step.node_count == 1 ? "127.0.0.1" : launch::find_leader(step, launch::Order::slurm).host;
}

std::uint16_t leader_port(const Environment& environment, const launch::StepFacts& step,
                          const StepOptions& options) {
  if (options.port) return *options.port;
  if (environment("MASTER_PORT")) {
    const auto port = integer(environment, "MASTER_PORT");
    if (port && *port > 0 && *port < 65536) return static_cast<std::uint16_t>(*port);
    throw UsageError(fmt::format("MASTER_PORT is '{}', not a port", *environment("MASTER_PORT")));
  }
  if (step.task_count == 1) return 0;
  return launch::choose_port(step, {}).candidates.front();
}

void pretend(const std::string& list, JobStep& step) {
  const auto names = expand_hostlist(list);
  const auto count = static_cast<std::int64_t>(names.size());
  if (count > step.size) {
    throw UsageError(
        fmt::format("--pretend-nodes names {} nodes, but there are {} tasks", count, step.size));
  }
  auto sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw UsageError(fmt::format("--pretend-nodes names {} twice; give every node its own name",
                                 quote_for_display(*twice)));
  }
  const auto first_rank_of = [&](std::int64_t node) {
    return (node * step.size + count - 1) / count;
  };
  step.nodes.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto tasks = static_cast<int>(first_rank_of(i + 1) - first_rank_of(i));
    step.nodes.push_back({names[static_cast<std::size_t>(i)], tasks});
  }
  step.node = names[static_cast<std::size_t>(step.rank * count / step.size)];
  step.pretended = true;
}

// The component of "a.b.c" at this position, counted from the end; empty if there is none.
std::string part_from_end(const std::string& text, int from_end) {
  std::string rest = text;
  for (int i = 0; i < from_end; ++i) {
    const auto dot = rest.rfind('.');
    if (dot == std::string::npos) return {};
    rest.resize(dot);
  }
  const auto dot = rest.rfind('.');
  return dot == std::string::npos ? rest : rest.substr(dot + 1);
}

// Returns the larger value of SLURM's two variables, so that a one-node step of a larger job is
// never taken for the whole job.
int nodes_of_job(const Environment& environment) {
  const auto list = environment("SLURM_JOB_NODELIST");
  const auto listed = list ? static_cast<int>(expand_hostlist(*list).size()) : 0;
  return std::max(integer(environment, "SLURM_JOB_NUM_NODES").value_or(0), listed);
}

}  // namespace

std::string leaf_of(const Environment& environment) {
  const std::string address = environment("SLURM_TOPOLOGY_ADDR").value_or("");
  const std::string pattern = environment("SLURM_TOPOLOGY_ADDR_PATTERN").value_or("");
  if (part_from_end(pattern, 0) != "node" || part_from_end(pattern, 1) != "switch") return {};
  return part_from_end(address, 1);
}

JobStep step_from(const Environment& environment, const std::string& host_name,
                  const StepOptions& options) {
  const launch::Facts facts = read_facts(environment, host_name);
  JobStep step;
  step.rank = static_cast<int>(facts.task.rank);
  step.size = static_cast<int>(facts.step.task_count);
  step.node = node_of(facts);
  step.nodes = expected_nodes(facts.step);
  step.leader_host = leader_host(environment, facts.step);
  step.leader_port = leader_port(environment, facts.step, options);
  step.identity = facts.step.id;
  step.leaf = leaf_of(environment);
  step.job_nodes = nodes_of_job(environment);
  if (!options.pretend_nodes.empty()) pretend(options.pretend_nodes, step);
  return step;
}

}  // namespace ddp::check
