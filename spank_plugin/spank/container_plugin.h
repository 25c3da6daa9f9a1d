#pragma once
// Whether the container plugin pyxis runs before this one, as it must: it overwrites variables with
// those of the image, and what it sets last, counts.

#include <string>

namespace ddp::spank {

// One sentence if pyxis comes after this plugin in plugstack.conf; empty if it comes before, or is
// not there. SLURM loads plugins in the order in which it will call them.
std::string find_order_problem() noexcept;

// True if this srun was asked for a container of pyxis', on its command line or by sbatch's.
bool wants_container() noexcept;

}  // namespace ddp::spank
