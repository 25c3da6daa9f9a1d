// S_CTX_LOCAL: the decisions that belong to the whole step are made here, once, before it starts.
#include <cstdlib>

#include "spank_plugin/launch/environment.h"
#include "spank_plugin/launch/error.h"
#include "spank_plugin/launch/host/file_text.h"
#include "spank_plugin/launch/hostfile.h"
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/log.h"

namespace ddp::spank {
namespace {

namespace variable = launch::variable;

// setenv in srun reaches the tasks of all components.
void tell_nodes(const char* name, const std::string& value) {
  if (setenv(name, value.c_str(), 1) != 0)
    throw launch::LaunchError(std::string("cannot set ") + name);
}

// srun inside a task inherits what the srun around it told its own nodes.
void forget_outer_step() {
  unsetenv(variable::kSettings);
  unsetenv(variable::kRankZeroHost);
  unsetenv(variable::kComponents);
}

// Tasks never see the hostfile's order: SLURM sorts the node list that they get.
void tell_rank_zero_host() {
  constexpr std::size_t kMaxHostfile = 1U << 20U;
  const char* path = std::getenv("SLURM_HOSTFILE");
  if (path == nullptr) return;
  const auto text = launch::read_text(path, kMaxHostfile);
  if (!text) return;  // srun itself says that it cannot read it
  if (const auto host = launch::first_host_of_hostfile(*text))
    tell_nodes(variable::kRankZeroHost, *host);
}

}  // namespace

launch::Settings resolve_settings(const PluginState& state) {
  launch::Settings settings = state.site;
  if (const char* spec = std::getenv(variable::kUserSpec)) {
    apply(settings, launch::parse_spec(spec, variable::kUserSpec), launch::Origin::environment);
  }
  if (state.command_line) apply(settings, *state.command_line, launch::Origin::command_line);
  return settings;
}

void srun_after_options(PluginState& state) {
  ++state.components;
  forget_outer_step();
  try {
    const launch::Settings settings = resolve_settings(state);
    if (settings.mode == launch::Mode::off) return;
    if (state.components == 1) {
      for (const auto& problem : state.site_problems) log_error(problem);
    }
    tell_rank_zero_host();
    tell_nodes(variable::kComponents, std::to_string(state.components));
    tell_nodes(variable::kSettings, encode_settings(settings));
  } catch (const launch::LaunchError& error) {
    // Where plugstack.conf says "optional", SLURM starts the step whatever is returned: then the
    // tasks end with this message instead of running without what the user asked for.
    tell_nodes(variable::kSettings, std::string(kErrorMark) + error.what());
    throw;
  }
}

}  // namespace ddp::spank
