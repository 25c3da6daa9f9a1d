// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/leader.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/hostlist.h"
#include "base/text.h"
#include "spank_plugin/launch/plan/rank_order.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/name_check.h"
#include "spank_plugin/launch/step/node_address.h"

namespace ddp::launch {
namespace {

constexpr const char* kRemedy = "give its host with --ddp=master_addr=HOST";

// Rank 0 is on the first node of the step's first component. The step's node list is sorted over
// all components, but the job provides the nodes of each.
std::optional<Leader> leader_by_components(const StepFacts& step) {
  for (const auto& list : step.component_nodes) {
    const auto names = expand_hostlist(list);
    const std::unordered_set<std::string_view> members(names.begin(), names.end());
    for (const auto& node : step.nodes) {
      if (members.contains(node)) {
        return Leader{node, "first node of the step's first component",
                      "SLURM_JOB_NODELIST_HET_GROUP_*"};
      }
    }
  }
  return std::nullopt;
}

bool is_node_of(const StepFacts& step, const std::string& name) {
  return std::find(step.nodes.begin(), step.nodes.end(), name) != step.nodes.end();
}

Leader leader_of_reordered_step(const StepFacts& step) {
  const bool arbitrary = step.distribution.starts_with("arbitrary");
  if (step.rank_zero_in_map) {
    return {step.nodes[*step.rank_zero_in_map], "host of rank 0, by SLURM's process map",
            "SLURM_PMIX_MAPPING_SERV"};
  }
  if (arbitrary && step.rank_zero_in_hostfile && is_node_of(step, *step.rank_zero_in_hostfile)) {
    return {*step.rank_zero_in_hostfile, "host of rank 0, by the first line of the hostfile",
            "SLURM_HOSTFILE"};
  }
  // The list from -m arbitrary -w LIST of sbatch or salloc, which srun uses too.
  if (arbitrary && !step.arbitrary_nodes.empty()) {
    const std::string first = expand_hostlist(step.arbitrary_nodes).front();
    if (is_node_of(step, first)) {
      return {first, "host of rank 0, by the job's list of nodes", "SLURM_ARBITRARY_NODELIST"};
    }
  }
  if (!arbitrary) {
    if (auto leader = leader_by_components(step)) return *leader;
  }
  throw LaunchError(std::string("cannot tell which node runs rank 0: ") +
                    (arbitrary
                         ? "in an arbitrary distribution SLURM's node list is sorted; name the "
                           "order in a file with SLURM_HOSTFILE, use --mpi=pmix, or "
                         : "in a step of several components SLURM's node list is sorted; use "
                           "--mpi=pmix, or ") +
                    kRemedy);
}

// Each node can check the leader against its own tasks, which costs nothing and turns a wrong
// leader into an error message instead of a timeout.
void check_against_own_tasks(const Leader& leader, const TaskFacts& task) {
  if (task.node_name.empty() || task.ranks_on_node.empty()) return;
  const bool runs_rank_zero = std::find(task.ranks_on_node.begin(), task.ranks_on_node.end(), 0U) !=
                              task.ranks_on_node.end();
  if (runs_rank_zero == (leader.host == task.node_name)) return;
  throw LaunchError(task.node_name +
                    (runs_rank_zero ? " runs rank 0, but " : " does not run rank 0, but ") +
                    leader.source + " says that " + leader.host + " does; " + kRemedy);
}

}  // namespace

Leader find_leader(const StepFacts& step, Order order) {
  if (step.node_count == 0) {
    throw LaunchError(
        "mpirun started ranks on several hosts and does not report the host of rank 0; set it, "
        "e.g. "
        "mpirun -x MASTER_ADDR=$(hostname) ... if rank 0 runs where mpirun does, or --ddp "
        "master_addr=HOST");
  }
  if (step.launcher != Launcher::slurm)
    return {step.nodes.front(), "this host, the only one", "gethostname"};
  if (step.node_count == 1)
    return {step.nodes.front(), "the step's only node", "SLURM_STEP_NODELIST"};
  if (order != Order::slurm) {
    return {step.nodes[node_order(step, order).front()], "host of rank 0, the first node",
            "order=" + std::string(word_for(order))};
  }
  if (step.has_components || step.distribution.starts_with("arbitrary"))
    return leader_of_reordered_step(step);
  return {step.nodes.front(), "host of rank 0, the step's first node", "SLURM_STEP_NODELIST"};
}

std::string with_suffix(std::string_view host, std::string_view suffix) {
  const auto first = host.substr(0, host.find('.'));
  std::string name(first);
  return name.append(suffix).append(host.substr(first.size()));
}

std::string suffix_in_use(const NodeFacts& node, const Settings& settings) {
  return node.lacks_suffix ? "" : settings.addr_suffix.value;
}

std::string address_of_node(const std::string& name, const Facts& facts, const Settings& settings) {
  const auto slurms =
      facts.node.slurms_address ? slurms_address_of(name, facts.step.node_addresses) : std::nullopt;
  return slurms ? *slurms : with_suffix(name, suffix_in_use(facts.node, settings));
}

Leader find_leader_address(const Facts& facts, const Settings& settings) {
  const Order order = settings.order.value;
  const auto& step = facts.step;
  const auto& task = facts.task;
  const auto& node = facts.node;
  Leader leader = find_leader(step, order);
  if (order == Order::slurm) check_against_own_tasks(leader, task);
  const bool is_own_node = leader.host == task.node_name;
  const std::string suffix = suffix_in_use(node, settings);
  if (!suffix.empty()) {
    leader.host = with_suffix(leader.host, suffix);
    leader.rule += ", with addr_suffix=" + suffix;
  }
  if (node.slurms_address) {
    return {*node.slurms_address, "SLURM's address of " + leader.host + ", " + leader.rule,
            kSlurmsAddress};
  }
  const auto lookup = node.leader_lookup;
  if (lookup == NameLookup::not_done || lookup == NameLookup::usable) return leader;
  // The host itself may resolve its own name to 127.0.1.1; the other nodes' answers count.
  const bool is_own_loopback = lookup == NameLookup::only_local && is_own_node;
  if (step.node_count != 1 && is_unanswered(lookup)) return leader;
  if (step.node_count == 1) {
    leader.rule =
        "one node, whose name " + quote_for_display(leader.host) + " " + describe_lookup(lookup);
    leader.host = "127.0.0.1";
    return leader;
  }
  if (is_own_loopback) return leader;
  throw LaunchError("the name of rank 0's host, " + quote_for_display(leader.host) + ", " +
                    describe_lookup(lookup) + " on " +
                    (task.node_name.empty() ? "this node" : task.node_name) +
                    "; add it to /etc/hosts or DNS, or give an address with "
                    "--ddp=master_addr=ADDRESS (NodeAddr of `scontrol show node`)" +
                    (suffix.empty() ? "" : ", or leave out addr_suffix=" + suffix));
}

}  // namespace ddp::launch
