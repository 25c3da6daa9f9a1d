// SPDX-License-Identifier: Apache-2.0
// Where a run is: its position, its length, and its loss so far. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ddp_runtime/train/run/run_length.h"
#include "ddp_runtime/train/state/position.h"

namespace ddp::train {

class RunPosition {
 public:
  // `size`: of an epoch with the global batch of this process. `dry`: it makes one step at most.
  RunPosition(const RequestedLength& requested, const EpochSize& size, bool dry)
      : requested_(requested), size_(size), dry_(dry) {}

  // In the state of the run, which resumed from `position` or has it from the beginning.
  Position position;

  // This process begins at `position`: the length of the run follows from it.
  void begin();

  std::int64_t global_batch() const noexcept { return size_.global_batch; }
  std::int64_t epochs() const noexcept { return epochs_; }  // of the whole run
  std::int64_t planned_steps() const noexcept;              // of the whole run
  std::int64_t last_step() const noexcept;                  // of this process, if nothing stops it
  std::int64_t first_step() const noexcept { return first_step_; }
  std::int64_t steps_taken() const noexcept { return position.step - first_step_; }
  // Whether the rest of the epoch is less than a batch.
  bool epoch_done() const noexcept {
    return position.consumed + size_.global_batch > size_.samples;
  }
  // Whether a step is left to make.
  bool has_steps() const noexcept {
    return position.epoch < epochs_ && position.step < last_step();
  }

  // Where the run is in its schedule, which counts in batches of the size with which it began.
  ScheduledStep scheduled() const noexcept;
  // See why_schedule_is_cut().
  std::string why_schedule_is_cut() const;

  // Means over the ranks, in the order of the steps; one that is not finite is of a skipped step.
  void add_losses(std::span<const double> means);
  // The mean of the current or last epoch.
  double epoch_loss() const noexcept { return epoch_loss_; }

 private:
  Reached reached() const noexcept { return {position.epoch, position.consumed, position.step}; }
  EpochSize first_size() const noexcept { return {size_.samples, position.first_batch}; }

  RequestedLength requested_;
  EpochSize size_;
  bool dry_;
  std::int64_t epochs_ = 0;
  std::int64_t first_step_ = 0;
  double epoch_loss_ = 0;
};

}  // namespace ddp::train
