// S_CTX_ALLOCATOR: salloc and sbatch. SLURM itself carries the option to every srun inside; what
// is left to do is to find a mistake now rather than when the job has waited for its turn.
#include "spank_plugin/spank/contexts.h"

namespace ddp::spank {

void allocator_after_options(const PluginState& state) {
  static_cast<void>(resolve_settings(state));
}

}  // namespace ddp::spank
