// SPDX-License-Identifier: Apache-2.0
// The sizes of a small training, for tests of predicted costs.
#pragma once

#include "ddp_runtime/parallel/sharded/plan/shard_costs.h"

namespace ddp::test {

// 800 bytes of parameters in a root of 80 and eight units of 90, with two values of state each.
inline TrainingSizes sizes_of_units() {
  return {.trained = 800,
          .frozen = 0,
          .state = 1600,
          .fresh_gradients = 100,
          .largest_bucket = 120,
          .units = {.count = 8,
                    .root = 80,
                    .largest = 90,
                    .last = 90,
                    .partly_frozen = 0,
                    .largest_of_gradients = 90}};
}

}  // namespace ddp::test
