// SPDX-License-Identifier: Apache-2.0
// Looks at the other plugins in plugstack.conf. The container plugin pyxis must run before this
// one: pyxis overwrites variables with those of the image, and the last plugin to set a variable
// wins.
#pragma once

#include <string>

namespace ddp::spank {

// Returns one sentence if pyxis comes after this plugin in plugstack.conf; empty if it comes before
// or is not installed. SLURM loads plugins in the order in which it calls them.
std::string find_order_problem() noexcept;

// The file of another copy of this plugin that comes before this one in plugstack.conf; empty if
// there is none.
std::string find_earlier_copy() noexcept;

// True if a pyxis container was requested for this srun, on its own command line or on sbatch's.
bool wants_container() noexcept;

}  // namespace ddp::spank
