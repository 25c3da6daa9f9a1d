// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/pmix_fence.h"

#include <cstdlib>

namespace ddp::spank {

void ask_for_fence_that_waits() noexcept {
  if (std::getenv("SLURM_PMIX_DIRECT_CONN") != nullptr) return;
  constexpr int kKeepsTheUsers = 0;
  // If setenv fails for lack of memory, the step starts with SLURM's own choice.
  setenv("SLURM_PMIX_FENCE", "ring", kKeepsTheUsers);
}

}  // namespace ddp::spank
