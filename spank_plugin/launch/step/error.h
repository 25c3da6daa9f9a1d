// SPDX-License-Identifier: Apache-2.0
// Errors that can occur while a step's facts are turned into its plan.
#pragma once

#include "base/errors.h"

namespace ddp::launch {

// One sentence for the user who started the step: what is wrong, where, and what to do.
class LaunchError : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace ddp::launch
