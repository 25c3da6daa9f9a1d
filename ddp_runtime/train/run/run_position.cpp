// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/run_position.h"

#include <algorithm>
#include <cmath>

namespace ddp::train {

void RunPosition::begin() {
  if (position.first_batch == 0) position.first_batch = size_.global_batch;
  epochs_ = epochs_of_run(requested_, size_, reached());
  first_step_ = position.step;
}

std::int64_t RunPosition::planned_steps() const noexcept {
  return train::planned_steps({epochs_, requested_.steps}, size_, reached());
}

std::int64_t RunPosition::last_step() const noexcept {
  return dry_ ? std::min<std::int64_t>(planned_steps(), 1) : planned_steps();
}

ScheduledStep RunPosition::scheduled() const noexcept {
  return scheduled_step(requested_, first_size(), reached());
}

std::string RunPosition::why_schedule_is_cut() const {
  return train::why_schedule_is_cut(requested_, first_size(), size_, reached());
}

void RunPosition::add_losses(std::span<const double> means) {
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;
    position.loss_sum += mean;
    ++position.loss_steps;
  }
  if (position.loss_steps > 0) {
    epoch_loss_ = position.loss_sum / static_cast<double>(position.loss_steps);
  }
}

}  // namespace ddp::train
