// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/stop_agreement.h"

#include <algorithm>

#include "ddp_runtime/train/ranks/job_deadline.h"

namespace ddp::train {

void StopAgreement::open(comm::Group& group, const RunLog& log) {
  boundary_.emplace(group);
  if (group.rank() != 0) return;
  const auto end = job_end();
  boundary_->set_deadline(end.deadline);
  if (!end.problem.empty()) log.line("checkpoint: " + end.problem);
}

// Seconds before the end of the job's time at which the run must stop.
double StopAgreement::lead(std::int64_t steps) const {
  return lead_seconds(longest_step_ * static_cast<double>(steps),
                      checkpointer_.longest_save_seconds());
}

void StopAgreement::begin(std::int64_t step, std::int64_t max_lead) {
  if (!boundary_ || asked_at_) return;
  asked_at_ = step;
  boundary_->begin(checkpointer_.writing(), lead(1 + max_lead), checkpointer_.time_to_save(),
                   {checkpointer_.copying(), checkpointer_.time_to_copy()});
}

void StopAgreement::end(const Position& position, std::int64_t max_lead, bool last_of_epoch) {
  if (!asked_at_) return;
  const bool all_asked = position.step - *asked_at_ > max_lead;
  const bool due = checkpointer_.due(position, false) || checkpointer_.copy_due(position, false);
  if (!all_asked && !last_of_epoch && !due) return;
  asked_at_.reset();
  const auto agreed = boundary_->end();
  reason_ = agreed.stop;
  checkpointer_.poll(agreed.writing, agreed.copying);
  if (agreed.save) checkpointer_.request_save();
  if (agreed.copy) checkpointer_.request_copy();
}

void StopAgreement::note_step(double seconds) noexcept {
  longest_step_ = std::max(longest_step_, seconds);
}

Interruption StopAgreement::interruption() {
  if (!boundary_) return {[] {}, [] { return false; }};
  const auto ask = [this] { boundary_->begin(checkpointer_.writing(), lead(1)); };
  const auto answer = [this] {
    reason_ = boundary_->end().stop;
    return stops();
  };
  return {ask, answer};
}

}  // namespace ddp::train
