// S_CTX_SLURMD: nothing but lines in the log, for the administrator who asks what is loaded and
// whether it is set up well.
#include "slurm_ddp/version.h"
#include "spank_plugin/launch/host/port_probe.h"
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/log.h"

namespace ddp::spank {

namespace {

std::string slurm_release() {
  const int minor = SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER);
  return std::to_string(SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER)) + (minor < 10 ? ".0" : ".") +
         std::to_string(minor);
}

}  // namespace

void slurmd_init(const PluginState& state) {
  log_line(std::string("version ") + kVersion + " for SLURM " + slurm_release());
  for (const auto& problem : state.site_problems) log_error(problem);
  const auto& ports = state.site.computed_ports.value;
  const auto overlap = launch::count_ephemeral_here(ports);
  if (overlap == 0) return;
  log_line(
      "the kernel may give " + std::to_string(overlap) + " of the ports " +
      std::to_string(ports.first) + "-" + std::to_string(ports.last) +
      " to outgoing connections (net.ipv4.ip_local_port_range), and a step that was told to listen "
      "on "
      "one of them would fail; set MpiParams=ports=FIRST-LAST in slurm.conf, or port_base= and "
      "port_count= in plugstack.conf, or net.ipv4.ip_local_reserved_ports");
}

}  // namespace ddp::spank
