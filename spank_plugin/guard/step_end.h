// SPDX-License-Identifier: Apache-2.0
// The decision of a guard that its step ends: a rank has failed, or all stand still.
#pragma once

#include <optional>

#include "base/deadline.h"

namespace ddp::guard {

struct StepEnd {
  Clock::time_point at;  // when the tasks that still run are told to end
  // Exit code of those that then do not end with 0, so that the step's is that of the rank that
  // failed. 0: each keeps its own.
  int code = 0;
  bool is_explained = true;  // a guard has said why; otherwise one may still do so until then
};

// What is sooner.
inline bool is_before(const StepEnd& end, const std::optional<StepEnd>& other) noexcept {
  return !other || end.at < other->at;
}

}  // namespace ddp::guard
