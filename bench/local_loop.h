// SPDX-License-Identifier: Apache-2.0
// A training loop with local steps.
#pragma once

#include <cstdint>

#include "bench/training_loop.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/local/local_steps.h"

namespace ddp::bench {

class LocalLoop {
 public:
  // Collective. Averages the parameters after every `every` steps. `group` must outlive this
  // object.
  LocalLoop(comm::Group& group, TrainingLoop loop, std::int64_t every, const BucketLimits& buckets);

  TrainingLoop& loop() noexcept { return loop_; }
  void step();

 private:
  TrainingLoop loop_;
  LocalSteps local_;
  DistributedDataParallel replica_;
};

}  // namespace ddp::bench
