// SPDX-License-Identifier: Apache-2.0
// The SLURM release that the plugin was built for, and the one that has loaded it. SLURM itself
// refuses a plugin of another release, with a message that gives no remedy; this check is for a
// SLURM that does not refuse it.
#pragma once

#include <string>

#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

// "22.05".
std::string built_for_release();

// One sentence if SLURM reports another release; empty if not, or if it does not report one.
std::string find_release_problem(spank_t spank);

}  // namespace ddp::spank
