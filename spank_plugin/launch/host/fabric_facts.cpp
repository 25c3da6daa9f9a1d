#include "spank_plugin/launch/host/fabric_facts.h"

#include <optional>
#include <string>

#include "spank_plugin/fabric/host/local_addresses.h"
#include "spank_plugin/fabric/plan.h"
#include "spank_plugin/launch/error.h"

namespace ddp::launch {
namespace {

// The GPU that a task takes of those it sees: the only one, or, where all tasks of the node see all
// of them, the one at its local rank. Nothing if there are fewer.
std::optional<std::string> own_gpu(const std::string& devices, std::uint32_t local_rank) {
  if (devices.find(',') == std::string::npos) return devices;
  std::size_t begin = 0;
  for (std::uint32_t i = 0; i < local_rank; ++i) {
    begin = devices.find(',', begin);
    if (begin == std::string::npos) return std::nullopt;
    ++begin;
  }
  return devices.substr(begin, devices.find(',', begin) - begin);
}

fabric::Request request_for(const Facts& facts, const Settings& settings) {
  fabric::Request request;
  request.node_count = facts.step.node_count;
  request.leader_addresses = facts.node.leader_addresses;
  request.peer_addresses = facts.node.peer_addresses;
  const auto& addresses =
      request.leader_addresses.empty() ? request.peer_addresses : request.leader_addresses;
  if (!addresses.empty()) request.source_address = fabric::source_address_to(addresses.front());
  if (settings.fabric.value != "auto") request.preset = settings.fabric.value;
  request.bind_ucx = settings.ucx.value == UcxPolicy::bind;
  if (request.bind_ucx && !facts.task.gpus.empty()) {
    request.gpu = own_gpu(facts.task.gpus.front().devices, facts.task.local_rank);
  }
  return request;
}

FabricPart part_of(const fabric::Plan& plan) {
  FabricPart part{{}, plan.warnings, plan.notes, plan.summary};
  for (const auto& setting : plan.settings) {
    part.entries.push_back(
        {setting.name, setting.value, setting.rule, setting.source, setting.kept, false});
  }
  return part;
}

}  // namespace

FabricPart find_fabric_part(const Facts& facts, const Settings& settings,
                            const EnvLookup& environment, const Inherited& inherited) {
  if (settings.fabric.value == "off") return {};
  fabric::Roots roots;
  roots.home = environment("HOME").value_or("");
  roots.nccl_conf_file = environment("NCCL_CONF_FILE").value_or("");
  const fabric::Node node = fabric::read_node(roots, fabric::local_addresses());
  try {
    return part_of(
        fabric::make_plan(node, request_for(facts, settings),
                          [&](const std::string& name) { return inherited.from_user(name); }));
  } catch (const fabric::FabricError& error) {
    throw LaunchError(error.what());
  }
}

}  // namespace ddp::launch
