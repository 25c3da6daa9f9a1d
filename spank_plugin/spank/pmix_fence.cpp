// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/pmix_fence.h"

#include <cstdlib>

namespace ddp::spank {
namespace {

constexpr const char* kFence = "SLURM_PMIX_FENCE";
constexpr const char* kFenceIsOurs = "SLURM_DDP_PMIX_FENCE";

}  // namespace

void ask_for_fence_that_waits() noexcept {
  const bool is_chosen = std::getenv(kFence) != nullptr;
  if (is_chosen || std::getenv("SLURM_PMIX_DIRECT_CONN") != nullptr) return;
  // If setenv fails for lack of memory, the step starts with SLURM's own choice.
  if (setenv(kFenceIsOurs, "1", 1) == 0) setenv(kFence, "ring", 1);
}

void keep_fence_from_task(const TaskEnvironment& environment) {
  if (!environment.get(kFenceIsOurs)) return;
  environment.remove(kFence);
  environment.remove(kFenceIsOurs);
}

}  // namespace ddp::spank
