// SPDX-License-Identifier: Apache-2.0
#include "bench/local_loop.h"

#include <utility>

namespace ddp::bench {

LocalLoop::LocalLoop(comm::Group& group, TrainingLoop loop, std::int64_t every,
                     const BucketLimits& buckets)
    : loop_(std::move(loop)),
      local_(loop_.model(), group, {.every = every, .buckets = buckets}),
      replica_(loop_.model(), local_.gradient_group(), {.buckets = buckets}) {}

void LocalLoop::step() {
  local_.begin_step();
  loop_.step_by_bucket(replica_);
  local_.end_step();
}

}  // namespace ddp::bench
