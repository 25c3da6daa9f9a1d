// SPDX-License-Identifier: Apache-2.0
// S_CTX_ALLOCATOR: salloc and sbatch. SLURM itself passes the option to every srun of the job. This
// context reports a mistake before the job waits in the queue and, in a task of a planned step,
// keeps that step's ranks out of the new job.
#include <cstdlib>

#include "spank_plugin/launch/marker.h"
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/option.h"
#include "spank_plugin/spank/step_key.h"

namespace ddp::spank {

namespace {

// Removes the variables of an enclosing step: the new job's script inherits the environment of
// sbatch, and its steps inherit the script's.
void forget_step_around() {
  const launch::Inherited inherited(
      [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        if (value == nullptr) return std::nullopt;
        return value;
      },
      "");
  if (!inherited.is_set(launch::variable::kMarker)) return;
  for (const auto& name : inherited.marked_names()) unsetenv(name.c_str());
  for (const auto* name : launch::kRankVariables) unsetenv(name);
  for (const auto* name :
       {launch::variable::kMarker, launch::variable::kSettings, launch::variable::kRankZeroHost,
        launch::variable::kComponents, launch::variable::kSwitchMap}) {
    unsetenv(name);
  }
}

}  // namespace

void allocator_after_options(const PluginState& state) {
  static_cast<void>(resolve_settings(state));
  forget_step_around();
  forget_outer_step_key();
}

}  // namespace ddp::spank
