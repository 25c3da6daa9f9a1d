// SPDX-License-Identifier: Apache-2.0
// S_CTX_SLURMD: only writes lines to the log, which show the administrator the loaded version and
// problems of its configuration.
#include "slurm_ddp/version.h"
#include "spank_plugin/launch/host/port_probe.h"
#include "spank_plugin/spank/container_plugin.h"
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/log.h"
#include "spank_plugin/spank/release.h"

namespace ddp::spank {

void slurmd_init(const PluginState& state) {
  log_line(std::string("version ") + kVersion + " for SLURM " + built_for_release());
  if (!state.release_problem.empty()) log_error(state.release_problem);
  for (const auto& problem : state.site_problems) log_error(problem);
  if (const auto problem = find_order_problem(); !problem.empty()) log_error(problem);
  const auto& ports = state.site.computed_ports.value;
  const auto overlap = launch::count_ephemeral_here(ports);
  if (overlap == 0) return;
  log_line(
      "the kernel may give " + std::to_string(overlap) + " of the ports " +
      std::to_string(ports.first) + "-" + std::to_string(ports.last) +
      " to outgoing connections (net.ipv4.ip_local_port_range), and a step that must listen on "
      "one of them would fail; set MpiParams=ports=FIRST-LAST in slurm.conf, or port_base= and "
      "port_count= in plugstack.conf, or net.ipv4.ip_local_reserved_ports");
}

}  // namespace ddp::spank
