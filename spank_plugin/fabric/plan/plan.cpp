// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/plan.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/fabric/plan/nvlink_domain.h"
#include "spank_plugin/fabric/plan/preset_settings.h"
#include "spank_plugin/fabric/plan/rdma_settings.h"
#include "spank_plugin/fabric/plan/socket_settings.h"
#include "spank_plugin/fabric/plan/summary.h"
#include "spank_plugin/fabric/plan/task_limits.h"
#include "spank_plugin/fabric/plan/user_overrides.h"

namespace ddp::fabric {
namespace {

void warn_of_unlisted(const Node& node, PlanBuilder& builder) {
  constexpr std::size_t kMaxNamed = 4;
  std::vector<std::string> names;
  for (const auto& interface : node.unlisted) {
    const bool has_address =
        std::any_of(node.addresses.begin(), node.addresses.end(),
                    [&](const auto& entry) { return entry.interface == interface.name; });
    if (has_address && names.size() < kMaxNamed) names.push_back(quote_for_display(interface.name));
  }
  if (names.empty()) return;
  builder.warn_of_node("no variable can name the interface " + join(names, " or ") +
                       ", because lists such as NCCL_SOCKET_IFNAME need printable ASCII without "
                       "commas; rename it");
}

}  // namespace

const Setting* Plan::find(std::string_view name) const noexcept {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [name](const auto& setting) { return setting.name == name; });
  return found == settings.end() ? nullptr : &*found;
}

Plan make_plan(const Node& node, const Request& request, const UserVariables& user) {
  Plan plan;
  plan.warnings = node.problems;
  PlanBuilder builder(plan, node, user);
  apply_preset(node, request, builder);
  const ComputePorts compute = choose_compute_ports(node);
  const bool is_one_node = request.node_count == 1;
  if (is_one_node) {
    builder.note("one node: no interface or port needs to be chosen");
  } else {
    warn_of_unlisted(node, builder);
    set_hcas(node, compute, builder);
    set_sockets(node, request, plan, builder);
    set_gids(node, plan.interface, builder);
    bind_ucx(node, request, compute, builder);
    check_nvlink_domain(node, builder);
    check_locked_memory(node, request, builder);
  }
  check_cpus_of_gpu(node, request, builder);
  warn_of_user_overrides(node, is_one_node, builder);
  plan.summary = summarize(node, compute.ports, plan.interface, is_one_node);
  return plan;
}

}  // namespace ddp::fabric
