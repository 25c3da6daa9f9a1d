// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/preset_settings.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"
#include "spank_plugin/fabric/choice/roce_gid.h"

namespace ddp::fabric {
namespace {

// Returns the reason why a preset's value cannot work on this node; empty if it can.
std::string why_impossible(const Node& node, const std::string& name, const std::string& value) {
  if (name == "NCCL_SOCKET_IFNAME" && nccl_interfaces(node, value).empty()) {
    return "no running interface of this node matches";
  }
  if (name == "NCCL_TOPO_FILE" && std::find(node.topology_files.begin(), node.topology_files.end(),
                                            value) == node.topology_files.end()) {
    return "the file does not exist here";
  }
  if (name == "NCCL_IB_HCA" && nccl_ports(node, value).empty()) {
    return "no active port of this node matches";
  }
  if (name == "NCCL_IB_GID_INDEX") {
    const auto index = parse_decimal(value);
    for (const InfinibandPort* port : nccl_ports(node, "")) {
      if (port->link_layer == "Ethernet" && shows_gid_types(*port) &&
          !(index && is_roce_v2_gid(*port, *index))) {
        return "that entry of " + name_of(*port) + " is not a RoCE v2 address";
      }
    }
  }
  return {};
}

std::string assignment_text(const std::string& name, const std::string& value) {
  return name + "=" + value;
}

}  // namespace

void apply_preset(const Node& node, const Request& request, PlanBuilder& builder) {
  const auto& requested = request.preset ? request.preset : node.site.preset;
  if (!requested || *requested == "none") return;
  const auto preset = find_preset(node.site.presets, *requested);
  if (!preset) {
    throw FabricError("unknown fabric preset " + quote_for_display(*requested) +
                      ": known presets are " + preset_names(node.site.presets));
  }
  for (const auto& [name, value] : preset->values) {
    if (builder.is_decided(name)) continue;
    const std::string reason = why_impossible(node, name, value);
    if (reason.empty()) {
      builder.set(name, value, "preset " + preset->name, preset->source);
    } else {
      builder.warn("preset " + preset->name + ": " + assignment_text(name, value) +
                   " is left out, since " + reason);
    }
  }
}

}  // namespace ddp::fabric
