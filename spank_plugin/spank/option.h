#pragma once
// The option --ddp[=SPEC] of srun, salloc and sbatch.

#include "spank_plugin/spank/plugin_state.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

// Must be called in slurm_spank_init of every context, slurmstepd included, or the option is
// unknown there. `callback` gets the SPEC, or nothing for a bare --ddp.
void register_option(spank_t spank, spank_opt_cb_f callback);

// The option was given in srun, salloc or sbatch. Throws launch::LaunchError for a wrong SPEC.
// May be called several times (srun in a batch script: first sbatch's option, then its own).
void take_option(PluginState& state, const char* spec);

}  // namespace ddp::spank
