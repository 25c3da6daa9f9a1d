// SPDX-License-Identifier: Apache-2.0
// Calls a program's callbacks, see callbacks.h, and tells ddp-run the same.
#pragma once

#include <cstdint>
#include <optional>

#include "ddp_runtime/comm/ddp_run/run_events.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/checkpoint/checkpointer.h"
#include "ddp_runtime/train/run/callbacks.h"

namespace ddp::train {

class CallbackCalls {
 public:
  // Both must outlive the object.
  CallbackCalls(comm::Group& group, const Callbacks& callbacks)
      : group_(group), callbacks_(callbacks) {}

  // Training begins with the state after `step`.
  void begin_after_step(std::int64_t step);
  // `stall`: the seconds of the step, included in event.seconds, in which it waited for a
  // checkpoint; nullopt if there was none. Returns whether there is such a callback.
  bool after_step(const StepEvent& event, std::optional<double> stall);
  // A checkpoint kept training waiting between two steps.
  void note_stall(double seconds);
  // Says how far the run is, if it may end soon.
  void tell_progress();
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
  comm::RunProgress progress_;
};

}  // namespace ddp::train
