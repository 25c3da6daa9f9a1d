// SPDX-License-Identifier: Apache-2.0
// The trainer's step as a graph, on the model and the batch of a loop.
#pragma once

#include <c10/core/Stream.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "bench/training_loop.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/data/prefetch.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/profile/step_recorder.h"
#include "ddp_runtime/train/step/training_step.h"

namespace ddp::bench {

// Measures what a user of the trainer gets: each step copies its batch to the device, and its loss
// to the host.
class GraphedLoop {
 public:
  // Collective. `optimizer`: as in TrainingLoop. `loop` must outlive this, and must not be used for
  // steps of its own. Throws UsageError if the device has no graphs.
  GraphedLoop(comm::Group& group, TrainingLoop& loop, const std::string& optimizer,
              const BucketLimits& buckets);

  // Makes `run` with the stream of the steps as this thread's current one.
  void on_stream(const std::function<void()>& run);
  // Only within on_stream().
  void step();

 private:
  data::Batch batch_;  // in pinned memory
  c10::Stream stream_;
  train::Objective objective_;
  profile::StepRecorder recorder_;
  std::unique_ptr<train::TrainingStep> step_;
  std::optional<data::Prefetcher> batches_;
  std::int64_t steps_ = 0;
};

}  // namespace ddp::bench
