// SPDX-License-Identifier: Apache-2.0
// Lets all ranks agree, beside each step, on when to save and when to stop (StepBoundary), and
// moves the save in progress on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/run_log.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/checkpoint/checkpointer.h"
#include "ddp_runtime/train/objective/evaluation.h"
#include "ddp_runtime/train/ranks/step_boundary.h"
#include "ddp_runtime/train/state/position.h"

namespace ddp::train {

class StopAgreement {
 public:
  // Until open(), nothing is agreed on, and signals have their default effect. `checkpointer` must
  // outlive this object.
  explicit StopAgreement(Checkpointer& checkpointer) : checkpointer_(checkpointer) {}

  // Collective. From here on a signal, or the end of the job's time, makes the run stop, which
  // saves first.
  void open(comm::Group& group, const RunLog& log);

  // Collective, at the beginning of a step. `max_lead`: how many steps a rank may be ahead.
  void begin(std::int64_t step, std::int64_t max_lead);
  // Collective, at its end. Completes the agreement once even the slowest rank must have started
  // its part, so that a rank that is ahead does not wait for it; before a save, and after the
  // `last_of_epoch`, at the latest, because the answer would not cover that save's writing.
  void end(const Position& position, std::int64_t max_lead, bool last_of_epoch);
  // The duration of a step.
  void note_step(double seconds) noexcept;

  // For an evaluation, which a reason to stop ends: the state is saved before SLURM kills the job,
  // and the next process evaluates.
  Interruption interruption();

  // Why the run stops before its end; empty if it does not. The same on all ranks.
  const std::string& reason() const noexcept { return reason_; }
  bool stops() const noexcept { return !reason_.empty(); }

 private:
  double lead(std::int64_t steps) const;

  Checkpointer& checkpointer_;
  std::optional<StepBoundary> boundary_;
  std::optional<std::int64_t> asked_at_;  // step since which the answer is pending
  std::string reason_;
  double longest_step_ = 0;
};

}  // namespace ddp::train
