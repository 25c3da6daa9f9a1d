// SPDX-License-Identifier: Apache-2.0
// S_CTX_ALLOCATOR: salloc and sbatch. SLURM itself passes the option to every srun of the job. This
// context reports a mistake before the job waits in the queue and, in a task of a planned step,
// keeps that step's ranks out of the new job.
#include "spank_plugin/spank/contexts.h"
#include "spank_plugin/spank/enclosing_step.h"
#include "spank_plugin/spank/option.h"
#include "spank_plugin/spank/step_key.h"

namespace ddp::spank {

// The new job's script inherits the environment of sbatch, and its steps inherit the script's.
void allocator_after_options(const PluginState& state) {
  static_cast<void>(resolve_settings(state));
  forget_enclosing_plan();
  forget_outer_step_key();
}

}  // namespace ddp::spank
