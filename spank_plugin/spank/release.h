// SPDX-License-Identifier: Apache-2.0
// Compares the SLURM release that the plugin was built for with the release that loaded it. SLURM
// itself refuses a plugin of another release, with a message that gives no remedy; this check is
// for a SLURM that does not refuse it.
#pragma once

#include <string>

#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

// Returns, for example, "22.05".
std::string built_for_release();

// Returns one sentence if SLURM reports another release; empty if it reports the same one or none.
std::string find_release_problem(spank_t spank);

}  // namespace ddp::spank
