#include "spank_plugin/spank/option.h"

#include <array>
#include <cstdlib>
#include <string_view>

#include "spank_plugin/launch/environment.h"
#include "spank_plugin/launch/error.h"

namespace ddp::spank {
namespace {

constexpr int kOptionalArgument = 2;

// SPANK's table wants writable strings.
std::array<char, 4> option_name{"ddp"};
std::array<char, 5> option_argument{"SPEC"};
std::array<char, 256> option_usage{
    "[ddp] make this step a distributed training job: set RANK, WORLD_SIZE, LOCAL_RANK, "
    "MASTER_ADDR, MASTER_PORT, ... in every task. SPEC: auto, rank, off, explain, verbose, "
    "master_addr=HOST, master_port=PORT"};

}  // namespace

void register_option(spank_t spank, spank_opt_cb_f callback) {
  spank_option option{option_name.data(),
                      option_argument.data(),
                      option_usage.data(),
                      kOptionalArgument,
                      0,
                      callback};
  if (spank_option_register(spank, &option) != ESPANK_SUCCESS) {
    throw launch::LaunchError(
        "cannot register the option --ddp; does another plugin have one of that name?");
  }
}

void take_option(PluginState& state, const char* spec) {
  const std::string_view text = spec == nullptr ? "" : spec;
  // What the tasks of `sbatch --ddp` and `salloc --ddp` inherit for a bare option: SLURM 22.05 has
  // printed a null pointer into the variable.
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
