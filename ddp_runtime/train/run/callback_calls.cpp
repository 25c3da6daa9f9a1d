// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/callback_calls.h"

namespace ddp::train {

void CallbackCalls::begin_after_step(std::int64_t step) {
  progress_.step = step;
  if (group_.rank() == 0) comm::tell_training(step);
}

void CallbackCalls::note_stall(double seconds) {
  progress_.stall_seconds += seconds;
  ++progress_.saves;
}

void CallbackCalls::tell_progress() {
  if (group_.rank() == 0) comm::tell_progress(progress_, /*in_any_case=*/true);
}

bool CallbackCalls::after_step(const StepEvent& event, std::optional<double> stall) {
  progress_.step = event.step;
  progress_.step_seconds += event.seconds - stall.value_or(0);
  if (stall) note_stall(*stall);
  if (group_.rank() == 0) comm::tell_progress(progress_);
  if (!callbacks_.after_step) return false;
  callbacks_.after_step(event);
  return true;
}

void CallbackCalls::after_evaluation(const EvaluationEvent& event) {
  if (callbacks_.after_evaluation) stop_if_any_rank_wants(callbacks_.after_evaluation(event));
}

void CallbackCalls::after_epoch(const EpochEvent& event) {
  if (callbacks_.after_epoch) stop_if_any_rank_wants(callbacks_.after_epoch(event));
}

void CallbackCalls::stop_if_any_rank_wants(Next mine) {
  const int wants = mine == Next::stop ? 1 : 0;
  stop_wanted_ = group_.all_reduce_value(wants, comm::ReduceOp::max) != 0 || stop_wanted_;
}

void CallbackCalls::begin_after(const Checkpointer& checkpointer) {
  saved_step_ = checkpointer.last_saved_step();
}

void CallbackCalls::note_saved(const Checkpointer& checkpointer) {
  const auto saved = checkpointer.last_saved_step();
  if (saved == saved_step_) return;
  saved_step_ = saved;
  if (group_.rank() == 0) comm::tell_kept_on_disk(saved);
  if (!callbacks_.after_save) return;
  callbacks_.after_save(
      {saved, group_.rank() == 0 ? checkpointer.newest() : std::filesystem::path()});
}

}  // namespace ddp::train
