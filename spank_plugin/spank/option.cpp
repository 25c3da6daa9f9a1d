// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/option.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "spank_plugin/launch/step/environment.h"
#include "spank_plugin/launch/step/error.h"

namespace ddp::spank {
namespace {

constexpr int kOptionalArgument = 2;

}  // namespace

void register_option(spank_t spank, spank_opt_cb_f callback) {
  // SPANK requires writable strings, and copies them.
  std::string name = "ddp";
  std::string argument = "SPEC";
  std::string usage =
      "[ddp] make this step a distributed training job: set RANK, WORLD_SIZE, LOCAL_RANK, "
      "MASTER_ADDR, MASTER_PORT, ... in every task; see srun-ddp(1). SPEC: " +
      launch::allowed_items();
  spank_option option{name.data(), argument.data(), usage.data(), kOptionalArgument, 0, callback};
  if (spank_option_register(spank, &option) != ESPANK_SUCCESS) {
    throw launch::LaunchError(
        "cannot register the option --ddp; another plugin may have an option of that name");
  }
}

void take_option(PluginState& state, const char* spec) {
  const std::string_view text = spec == nullptr ? "" : spec;
  // The value that tasks of `sbatch --ddp` and `salloc --ddp` inherit for a bare option, because
  // SLURM 22.05 prints a null pointer into the variable.
  constexpr std::string_view kPrintedNull = "(null)";
  state.command_line = launch::parse_spec(text == kPrintedNull ? "" : text, "--ddp");
}

launch::Settings resolve_settings(const PluginState& state) {
  launch::Settings settings = state.site;
  if (const char* spec = std::getenv(launch::variable::kUserSpec)) {
    apply(settings, launch::parse_spec(spec, launch::variable::kUserSpec),
          launch::Origin::environment);
  }
  if (state.command_line) apply(settings, *state.command_line, launch::Origin::command_line);
  return settings;
}

}  // namespace ddp::spank
