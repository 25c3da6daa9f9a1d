// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/node_facts.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/fabric/host/local_addresses.h"
#include "spank_plugin/launch/host/name_lookup.h"
#include "spank_plugin/launch/host/port_probe.h"
#include "spank_plugin/launch/plan/giver.h"
#include "spank_plugin/launch/plan/leader.h"
#include "spank_plugin/launch/plan/master_port.h"
#include "spank_plugin/launch/plan/rank_order.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/name_check.h"
#include "spank_plugin/launch/step/node_address.h"
#include "spank_plugin/launch/step/text.h"

namespace ddp::launch {
namespace {

// glibc retries after 5 seconds (resolv.conf(5), timeout:5) and gives up after 10: with a shorter
// limit, one lost packet would look like a dead name service.
constexpr std::chrono::seconds kLookupLimit{12};

bool derives_port(const Settings& settings, const Inherited& inherited) {
  return giver_of("MASTER_PORT", settings.master_port, inherited) == Giver::none;
}

// MASTER_ADDR as set by the user or the site; nullopt if it must be derived.
std::optional<std::string> given_address(const Settings& settings, const Inherited& inherited) {
  const std::string name = "MASTER_ADDR";
  switch (giver_of(name, settings.master_addr, inherited)) {
    case Giver::setting:
      return settings.master_addr->value;
    case Giver::user:
      return inherited.from_user(name);
    case Giver::earlier_plan:
      return inherited.from_this_step(name);
    case Giver::none:
      break;
  }
  return std::nullopt;
}

bool leads_nowhere(const NameAnswer& answer) {
  return answer.lookup == NameLookup::unknown_name || answer.lookup == NameLookup::only_local;
}

// Looks up the name with addr_suffix. If the name with the site's suffix does not resolve, as on
// nodes without that network, looks up the name without it, because the site's setting must not
// fail a step.
NameAnswer look_up_host(NodeFacts& facts, const std::string& host, const Settings& settings) {
  const auto& suffix = settings.addr_suffix;
  NameAnswer answer = look_up_name(with_suffix(host, suffix.value), kLookupLimit);
  if (suffix.value.empty() || suffix.origin != Origin::site || !leads_nowhere(answer)) {
    return answer;
  }
  facts.lacks_suffix = true;
  return look_up_name(host, kLookupLimit);
}

// A node of the step other than `host`. The step has several nodes.
const std::string& another_node(const StepFacts& step, const std::string& host) {
  return step.nodes[step.nodes[0] == host ? 1 : 0];
}

// The numeric addresses of SLURM's address of a node; empty if the step does not have any.
std::vector<std::string> slurms_addresses(const StepFacts& step, const std::string& node) {
  const auto slurms = slurms_address_of(node, step.node_addresses);
  return slurms ? look_up_name(*slurms, kLookupLimit).addresses : std::vector<std::string>();
}

bool has_slurms_address(const StepFacts& step) {
  const auto own = fabric::local_addresses();
  const auto entries = split(step.node_addresses, ',');
  return std::any_of(entries.begin(), entries.end(), [&own](std::string_view entry) {
    const auto address = fabric::parse_ip_address(entry.substr(entry.find('=') + 1));
    return address && !fabric::interface_with(own, *address).empty();
  });
}

// Replaces the name of rank 0's host by SLURM's address if names do not lead to the nodes here. The
// host itself may know only its own name, so there another one decides, too.
void check_names(NodeFacts& facts, const StepFacts& step, const std::string& host) {
  const NameView leader{host, facts.leader_lookup, facts.leader_addresses,
                        slurms_addresses(step, host)};
  if (leader.slurms.empty()) return;
  const std::string& other = another_node(step, host);
  const HostQueries queries{is_own_address, fabric::source_address_to,
                            [&step] { return has_slurms_address(step); },
                            [&other] { return look_up_name(other, kLookupLimit).addresses; }};
  facts.why_slurms_address = why_not_name(leader, queries);
  if (facts.why_slurms_address.empty() && is_here(leader, queries)) {
    const NameAnswer answer = look_up_name(other, kLookupLimit);
    facts.why_slurms_address = why_not_name(
        {other, answer.lookup, answer.addresses, slurms_addresses(step, other)}, queries);
  }
  if (facts.why_slurms_address.empty()) return;
  facts.slurms_address = slurms_address_of(host, step.node_addresses);
  facts.leader_addresses = leader.slurms;
}

void look_up_leaders_host(NodeFacts& facts, const StepFacts& step, const std::string& host,
                          const Settings& settings) {
  NameAnswer answer = look_up_host(facts, host, settings);
  facts.leader_lookup = answer.lookup;
  facts.leader_addresses = std::move(answer.addresses);
  if (step.node_count == 1 && facts.leader_lookup == NameLookup::usable &&
      std::none_of(facts.leader_addresses.begin(), facts.leader_addresses.end(), is_own_address)) {
    facts.leader_lookup = NameLookup::elsewhere;
  }
  // A suffix names another network than SLURM's address.
  if (step.nodes.size() > 1 && suffix_in_use(facts, settings).empty()) {
    check_names(facts, step, host);
  }
}

// A given address is used unchanged; resolving it only helps to choose interfaces.
void look_up_leader(NodeFacts& facts, const StepFacts& step, const Settings& settings,
                    const Inherited& inherited) {
  const bool wants_addresses = settings.fabric.value != "off" && step.node_count != 1;
  const auto given = given_address(settings, inherited);
  // ddp-launch inside srun --ddp continues with the choice of the plugin.
  if (given && inherited.from_this_step("MASTER_ADDR") == given &&
      is_slurms_address(*given, step.node_addresses)) {
    facts.slurms_address = given;
  }
  if (given && (!wants_addresses || !is_host_or_address(*given))) return;
  std::string no_order;  // reported by the plan
  const std::string host =
      given ? *given : find_leader(step, possible_order(step, settings.order, no_order)).host;
  NameLookup lookup = NameLookup::not_done;
  if (given) {
    NameAnswer answer = look_up_name(host, kLookupLimit);
    lookup = answer.lookup;
    facts.leader_addresses = std::move(answer.addresses);
  } else {
    look_up_leaders_host(facts, step, host, settings);
    lookup = facts.leader_lookup;
  }
  if (!wants_addresses || lookup != NameLookup::only_local || !facts.leader_addresses.empty() ||
      step.nodes.size() < 2) {
    return;
  }
  const std::string other = with_suffix(another_node(step, host), suffix_in_use(facts, settings));
  facts.peer_addresses = look_up_name(other, kLookupLimit).addresses;
}

// Returns nullopt if the port is free, or if the text is not a port, which a note of the plan
// reports.
std::optional<std::string> describe_if_taken(std::string_view text) {
  const auto port = parse_decimal(text, 65'535);
  if (!port || is_port_free(static_cast<std::uint16_t>(*port))) return std::nullopt;
  return describe_taken_port(static_cast<std::uint16_t>(*port));
}

void require_free(std::string_view port, const std::string& remedy) {
  const auto taken = describe_if_taken(port);
  if (!taken) return;
  throw LaunchError(*taken + "; start the step again, " + remedy +
                    ", or let SLURM reserve ports for each step (MpiParams=ports=FIRST-LAST in "
                    "slurm.conf)");
}

void note_if_taken(Plan& plan, const Inherited& inherited) {
  const std::string name = "JAX_COORDINATOR_ADDRESS";
  const PlanEntry* coordinator = plan.find(name);
  if (coordinator == nullptr || inherited.gives(name)) return;
  const std::string_view address = coordinator->value;
  const auto port = address.substr(address.rfind(':') + 1);
  if (port == plan.find("MASTER_PORT")->value) return;
  const auto taken = describe_if_taken(port);
  if (!taken) return;
  plan.notes.push_back(*taken + ": if the program uses JAX, start the step again, or set " + name +
                       "=HOST:PORT");
}

// Adds a note if MASTER_ADDR does not lead to this node, which runs rank 0, as with a name server
// that answers for every name, or a value from the script of another job: the other ranks then look
// for rank 0 in the wrong place, and all ranks wait until a time limit. This is not an error,
// because an address may also lead here by translation.
void note_if_elsewhere(Plan& plan, const NodeFacts& node, const StepFacts& step,
                       const Settings& settings) {
  const PlanEntry* entry = plan.find("MASTER_ADDR");
  // Without fabric settings a given name is not looked up; a derived one has its own messages.
  const bool is_derived = node.leader_lookup != NameLookup::not_done;
  if (step.node_count == 1 || entry == nullptr || !is_given_host(entry->value)) return;
  if (!is_derived && settings.fabric.value == "off") return;
  if (has_only_loopback()) {  // then, names may have no address, and any address can be bound
    plan.notes.emplace_back(
        "rank 0 has no network interface but lo, as in a container with a network of its own "
        "(--container-unshare=net), so ranks on other nodes cannot reach it");
    return;
  }
  const auto& addresses = node.leader_addresses;
  if (std::any_of(addresses.begin(), addresses.end(), is_own_address)) return;
  const std::string name = "MASTER_ADDR=" + entry->value + " (" + entry->source + ")";
  const std::string here = plan.node.empty() ? "this node" : plan.node;
  if (addresses.empty()) {
    if (!is_derived)
      plan.notes.push_back(name + " leads to no address by which other nodes reach " + here);
    return;
  }
  plan.notes.push_back(name + " is not an address of " + here +
                       ", where rank 0 runs: the other ranks may never reach it");
}

// Chooses the ports of a step for which this node may decide alone.
void choose_free_ports(NodeFacts& facts, const StepFacts& step, const Settings& settings,
                       const Inherited& inherited) {
  constexpr std::uint32_t kMaxCandidates = 64;
  if (derives_port(settings, inherited)) {
    facts.free_port = first_free_port(choose_port(step, settings).candidates);
  }
  if (inherited.gives("JAX_COORDINATOR_ADDRESS")) return;
  auto ports = service_ports(step, settings, kMaxCandidates);
  if (facts.free_port) std::erase(ports, *facts.free_port);
  facts.free_second_port = first_free_port(ports);
}

}  // namespace

NodeFacts gather_node_facts(const StepFacts& step, const Settings& settings,
                            const Inherited& inherited, bool may_choose_port) {
  NodeFacts facts;
  look_up_leader(facts, step, settings, inherited);
  if (may_choose_port && step.node_count == 1) {
    choose_free_ports(facts, step, settings, inherited);
  }
  return facts;
}

void check_planned_ports(Plan& plan, const Facts& facts, const Settings& settings,
                         const Inherited& inherited) {
  const bool leads = plan.rank == 0;
  if (leads && !facts.node.free_port && derives_port(settings, inherited)) {
    require_free(plan.find("MASTER_PORT")->value, "choose another with --ddp=master_port=PORT");
  }
  if (plan.find("TF_CONFIG") != nullptr && !inherited.gives("TF_CONFIG")) {
    const auto ports = service_ports(facts.step, settings, facts.task.local_rank + 1);
    require_free(std::to_string(ports.back()), "leave out tf_config and set TF_CONFIG yourself");
  }
  if (leads && !facts.node.free_second_port) note_if_taken(plan, inherited);
  if (leads) note_if_elsewhere(plan, facts.node, facts.step, settings);
}

}  // namespace ddp::launch
