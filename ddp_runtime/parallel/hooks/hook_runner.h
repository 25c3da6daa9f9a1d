// SPDX-License-Identifier: Apache-2.0
// Runs a communication hook over the buckets of a step.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "ddp_runtime/parallel/hooks/comm_hook.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp {

class HookRunner {
 public:
  explicit HookRunner(CommHook hook) : hook_(std::move(hook)) {}

  // Starts the hook on a full bucket. Rethrows the hook's exceptions.
  void start(GradientBucket bucket);
  // Resumes the hooks in turns, in the order in which their buckets were started, until all have
  // finished, so that collectives have the same order on all ranks. Returns the communication of
  // each bucket. Rethrows the hooks' exceptions.
  std::vector<profile::CommunicationSpan> finish();
  // Discards the state of a step that an exception interrupted.
  void reset() noexcept { running_.clear(); }

 private:
  struct Running {
    GradientBucket bucket;  // never moved: the hook refers to it
    std::optional<HookTask> task;
  };

  CommHook hook_;
  std::deque<Running> running_;
};

}  // namespace ddp
