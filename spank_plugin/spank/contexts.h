// SPDX-License-Identifier: Apache-2.0
// The plugin's work in each of SPANK's contexts: one file each, named after the program. All
// functions may throw; plugin.cpp turns an exception into a message and a return code.
#pragma once

#include "spank_plugin/spank/plugin_state.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

// In srun, before it reads its options from the environment.
void srun_before_options();

// In srun, once per component of a step, after the options: determines the step's settings and
// passes them to the nodes. Throws launch::LaunchError for a user error.
void srun_after_options(PluginState& state);

// In srun, once per component, after the step's nodes are known and before its tasks start: passes
// SLURM's addresses of the nodes to the nodes.
void srun_before_launch(const PluginState& state, spank_t spank);

// In salloc and sbatch, after the options: validates SLURM_DDP, which srun will read later, and
// sets nothing.
void allocator_after_options(const PluginState& state);

// In slurmd: writes a line to its log.
void slurmd_init(const PluginState& state);

// In slurmstepd, once per node, before the tasks are forked. Never throws for an error of the user
// or of the site, because that would drain the node; the tasks report the error instead.
void slurmstepd_user_init(PluginState& state, spank_t spank);

// In slurmstepd's child that will become the task, as the user: sets the variables, or ends the
// task.
void slurmstepd_task_init(const PluginState& state, spank_t spank);

}  // namespace ddp::spank
