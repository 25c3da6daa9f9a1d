// Runs a communication hook over the buckets of a step.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "ddp_runtime/parallel/comm_hook.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp {

class HookRunner {
 public:
  explicit HookRunner(CommHook hook) : hook_(std::move(hook)) {}

  // The bucket is full: the hook begins with it. Throws what the hook throws.
  void start(GradientBucket bucket);
  // Hooks go on in turns, in the order in which their buckets were started, until all have ended,
  // so that collectives have one order on all ranks. Returns what was sent for each bucket. Throws
  // what a hook throws.
  std::vector<profile::CommunicationSpan> finish();
  // Forgets what an exception has left of a step.
  void reset() noexcept { running_.clear(); }

 private:
  struct Running {
    GradientBucket bucket;  // stays where it is: the hook refers to it
    std::optional<HookTask> task;
  };

  CommHook hook_;
  std::deque<Running> running_;
};

}  // namespace ddp
