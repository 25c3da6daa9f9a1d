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

}  // namespace

NodeFacts gather_node_facts(const StepFacts& step, const Settings& settings,
                            const Inherited& inherited, bool may_choose_port) {
  NodeFacts facts;
  if (!settings.master_addr && !inherited.gives("MASTER_ADDR")) {
    facts.leader_lookup = look_up_name(find_leader(step, settings.order.value).host, kLookupLimit);
  }
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
