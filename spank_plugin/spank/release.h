#pragma once
// Which release of SLURM the plugin was built for, and which one has loaded it. SLURM itself
// refuses a plugin of another release, in words that do not say what to do; this is for a SLURM
// that does not.

#include <string>

#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

// "22.05".
std::string built_for_release();

// One sentence if SLURM says that it is another release; empty if not, or if it does not say.
std::string find_release_problem(spank_t spank);

}  // namespace ddp::spank
