// SPDX-License-Identifier: Apache-2.0
// The option --ddp[=SPEC] of srun, salloc and sbatch, and how it combines with the other sources of
// settings.
#pragma once

#include "spank_plugin/spank/plugin_state.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

// Must be called in slurm_spank_init of every context, including slurmstepd; otherwise the option
// is unknown there. `callback` gets the SPEC, or null for a bare --ddp.
void register_option(spank_t spank, spank_opt_cb_f callback);

// Called when the option was given to srun, salloc or sbatch. Throws launch::LaunchError for a
// wrong SPEC. May be called several times (srun in a batch script: first with sbatch's option, then
// with its own).
void take_option(PluginState& state, const char* spec);

// The site's settings, overridden by the environment's SLURM_DDP and by the command line. Throws
// launch::LaunchError for a wrong SLURM_DDP.
launch::Settings resolve_settings(const PluginState& state);

}  // namespace ddp::spank
