// SPDX-License-Identifier: Apache-2.0
// The moment of a run that a checkpoint holds.
#pragma once

#include <cstdint>

#include "ddp_runtime/train/state/position.h"

namespace ddp::train {

// At the end of an epoch, the state before its evaluation and the one after it have the same step.
struct SavePoint {
  std::int64_t step = -1;  // -1: none
  std::int64_t epoch = -1;

  static SavePoint of(const Position& position) { return {position.step, position.epoch}; }
  bool operator==(const SavePoint&) const = default;
};

}  // namespace ddp::train
