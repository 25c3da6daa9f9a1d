#pragma once
// What the plugin does in each of SPANK's contexts: one file each, named after the program.
// All may throw; plugin.cpp turns that into a message and a return code.

#include "spank_plugin/spank/plugin_state.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

// srun, before it reads its options from the environment.
void srun_before_options();

// srun, once per component of a step, after the options: decides what the step is asked to do and
// passes it to the nodes. Throws launch::LaunchError for a mistake of the user's.
void srun_after_options(PluginState& state);

// salloc and sbatch, after the options: checks what srun will read later, and sets nothing.
void allocator_after_options(const PluginState& state);

// slurmd: leaves a line in its log.
void slurmd_init(const PluginState& state);

// slurmstepd, once per node, before the tasks are forked. Never throws for a mistake of the user's
// or of the site's: that would drain the node. It is kept for the tasks to report.
void slurmstepd_user_init(PluginState& state, spank_t spank);

// slurmstepd's child that will become the task, as the user: sets the variables, or ends the task.
void slurmstepd_task_init(const PluginState& state, spank_t spank);

}  // namespace ddp::spank
