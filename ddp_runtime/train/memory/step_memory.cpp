// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/memory/step_memory.h"

#include <algorithm>

#include "base/errors.h"
#include "ddp_runtime/profile/process_memory.h"

namespace ddp::train {

StepMemory::StepMemory(std::int64_t model_bytes) {
  try {
    before_ = profile::process_memory().anonymous + profile::share_of_shared_memory() - model_bytes;
  } catch (const RuntimeError&) {
    before_.reset();
  }
}

void StepMemory::begin() {
  try {
    profile::reset_peak_memory();
    has_begun_ = true;
  } catch (const RuntimeError&) {
    has_begun_ = false;
  }
}

std::optional<std::int64_t> StepMemory::peak() const {
  if (!before_ || !has_begun_) return std::nullopt;
  try {
    const auto now = profile::process_memory();
    const auto own = now.peak - now.file - now.shared;
    return std::max<std::int64_t>(own + profile::share_of_shared_memory() - *before_, 0);
  } catch (const RuntimeError&) {
    return std::nullopt;
  }
}

}  // namespace ddp::train
