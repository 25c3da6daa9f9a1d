#include "spank_plugin/launch/host/node_facts.h"

#include "spank_plugin/launch/error.h"
#include "spank_plugin/launch/host/name_lookup.h"
#include "spank_plugin/launch/host/port_probe.h"
#include "spank_plugin/launch/leader.h"
#include "spank_plugin/launch/master_port.h"
#include "spank_plugin/launch/text.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::seconds kLookupLimit{5};

bool derives_port(const Settings& settings, const Inherited& inherited) {
  return !settings.master_port && !inherited.gives("MASTER_PORT");
}

// MASTER_ADDR as somebody gave it; nothing if it must be derived.
std::optional<std::string> given_address(const Settings& settings, const Inherited& inherited) {
  const auto& asked = settings.master_addr;
  if (asked && asked->origin == Origin::command_line) return asked->value;
  if (auto user = inherited.from_user("MASTER_ADDR")) return user;
  if (asked && asked->origin == Origin::environment) return asked->value;
  if (auto before = inherited.from_this_step("MASTER_ADDR")) return before;
  if (asked) return asked->value;
  return std::nullopt;
}

// A given address is taken as it is; where it leads only decides about interfaces.
void look_up_leader(NodeFacts& facts, const StepFacts& step, const Settings& settings,
                    const Inherited& inherited) {
  const bool wants_addresses = settings.fabric.value != "off" && step.node_count != 1;
  const auto given = given_address(settings, inherited);
  if (given && (!wants_addresses || !is_host_or_address(*given))) return;
  const std::string host = given ? *given : find_leader(step, settings.order.value).host;
  NameAnswer answer = look_up_name(host, kLookupLimit);
  if (!given) facts.leader_lookup = answer.lookup;
  facts.leader_addresses = std::move(answer.addresses);
  if (!wants_addresses || answer.lookup != NameLookup::only_loopback || step.nodes.size() < 2) {
    return;
  }
  const std::string& other = step.nodes[step.nodes[0] == host ? 1 : 0];
  facts.peer_addresses = look_up_name(other, kLookupLimit).addresses;
}

}  // namespace

NodeFacts gather_node_facts(const StepFacts& step, const Settings& settings,
                            const Inherited& inherited, bool may_choose_port) {
  NodeFacts facts;
  look_up_leader(facts, step, settings, inherited);
  if (may_choose_port && step.node_count == 1 && derives_port(settings, inherited)) {
    facts.free_port = first_free_port(choose_port(step, settings).candidates);
  }
  return facts;
}

void require_free_master_port(const Plan& plan, const Settings& settings,
                              const Inherited& inherited) {
  if (!derives_port(settings, inherited)) return;
  const auto port = parse_decimal(plan.find("MASTER_PORT")->value, 65'535);
  if (!port || is_port_free(static_cast<std::uint16_t>(*port))) return;
  throw LaunchError(
      describe_taken_port(static_cast<std::uint16_t>(*port)) +
      "; start the step again, choose another with --ddp=master_port=PORT, or let SLURM "
      "reserve ports for each step (MpiParams=ports=FIRST-LAST in slurm.conf)");
}

}  // namespace ddp::launch
