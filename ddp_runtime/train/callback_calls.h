// SPDX-License-Identifier: Apache-2.0
// Calls a program's callbacks; see callbacks.h.
#pragma once

#include <cstdint>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/train/callbacks.h"
#include "ddp_runtime/train/checkpointer.h"

namespace ddp::train {

class CallbackCalls {
 public:
  // Both must outlive the object.
  CallbackCalls(comm::Group& group, const Callbacks& callbacks)
      : group_(group), callbacks_(callbacks) {}

  // Returns whether there is such a callback.
  bool after_step(const StepEvent& event);
  // Collective, if there is such a callback.
  void after_evaluation(const EvaluationEvent& event);
  void after_epoch(const EpochEvent& event);
  // Whether a callback on any rank wants to stop.
  bool stop_wanted() const noexcept { return stop_wanted_; }

  // The run begins with the checkpoints that there are.
  void begin_after(const Checkpointer& checkpointer);
  // Saves run in the background, so this is called wherever one may have been found durable.
  void note_saved(const Checkpointer& checkpointer);

 private:
  void stop_if_any_rank_wants(Next mine);

  comm::Group& group_;
  const Callbacks& callbacks_;
  bool stop_wanted_ = false;
  std::int64_t saved_step_ = -1;  // for which after_save was called
};

}  // namespace ddp::train
