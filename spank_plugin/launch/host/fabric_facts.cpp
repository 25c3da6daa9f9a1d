// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/fabric_facts.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "spank_plugin/fabric/host/local_addresses.h"
#include "spank_plugin/launch/plan/gpu_view.h"
#include "spank_plugin/launch/step/error.h"

namespace ddp::launch {
namespace {

FabricPart part_of(const fabric::Plan& plan) {
  FabricPart part{{}, plan.warnings, plan.notes, plan.summary, plan.node_warnings};
  std::erase_if(part.warnings, [&plan](const std::string& warning) {
    return std::count(plan.node_warnings.begin(), plan.node_warnings.end(), warning) != 0;
  });
  for (const auto& setting : plan.settings) {
    part.entries.push_back(
        {setting.name, setting.value, setting.rule, setting.source, setting.kept, false});
  }
  return part;
}

std::optional<std::uint64_t> locked_memory_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return limit.rlim_cur;
}

}  // namespace

fabric::Request fabric_request(const Facts& facts, const Settings& settings) {
  fabric::Request request;
  request.node_count = facts.step.node_count;
  request.leader_addresses = facts.node.leader_addresses;
  request.peer_addresses = facts.node.peer_addresses;
  const auto& addresses =
      request.leader_addresses.empty() ? request.peer_addresses : request.leader_addresses;
  for (const auto& address : addresses) {
    if (!request.source_address) request.source_address = fabric::source_address_to(address);
  }
  if (settings.fabric.value != "auto") request.preset = settings.fabric.value;
  request.bind_ucx = settings.ucx.value == UcxPolicy::bind;
  if (facts.task.cpus) request.cpus = facts.task.cpus->numbers;
  request.locked_memory = locked_memory_limit();
  if (!may_start_ranks(view_gpus(facts.task, facts.node), facts.task)) {
    request.gpu = own_gpu(facts.task, facts.node, settings.gpus.value);
  }
  return request;
}

FabricPart find_fabric_part(const Facts& facts, const Settings& settings,
                            const EnvLookup& environment, const Inherited& inherited,
                            const std::optional<fabric::Site>& site) {
  if (settings.fabric.value == "off") return {};
  fabric::Roots roots;
  roots.home = environment("HOME").value_or("");
  roots.nccl_conf_file = environment("NCCL_CONF_FILE").value_or("");
  const fabric::Node node = fabric::read_node(roots, fabric::local_addresses(), site);
  try {
    return part_of(
        fabric::make_plan(node, fabric_request(facts, settings),
                          [&](const std::string& name) { return inherited.from_user(name); }));
  } catch (const fabric::FabricError& error) {
    throw LaunchError(error.what());
  }
}

}  // namespace ddp::launch
