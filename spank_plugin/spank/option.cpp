#include "spank_plugin/spank/option.h"

#include <array>

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
  state.command_line = launch::parse_spec(spec == nullptr ? "" : spec, "--ddp");
}

}  // namespace ddp::spank
