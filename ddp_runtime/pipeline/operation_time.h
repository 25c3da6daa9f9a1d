// SPDX-License-Identifier: Apache-2.0
// When one operation of a rank ran.
#pragma once

#include "ddp_runtime/pipeline/schedule.h"

namespace ddp::pipeline {

// In seconds from the beginning of the pass on this rank.
struct OperationTime {
  Operation operation;
  double begin = 0;
  double waited = 0;  // the first part of it, in which the rank waited for its neighbor
  double end = 0;

  double computing() const noexcept { return end - begin - waited; }
};

}  // namespace ddp::pipeline
