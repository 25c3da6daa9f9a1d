// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/callback_calls.h"

namespace ddp::train {

bool CallbackCalls::after_step(const StepEvent& event) {
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
  if (!callbacks_.after_save) return;
  callbacks_.after_save(
      {saved, group_.rank() == 0 ? checkpointer.newest() : std::filesystem::path()});
}

}  // namespace ddp::train
