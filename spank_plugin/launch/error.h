#pragma once
// What can go wrong between a step's facts and its plan.

#include "base/errors.h"

namespace ddp::launch {

// One sentence for the person who started the step: what is wrong, where, and what to do.
class LaunchError : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace ddp::launch
