// SPDX-License-Identifier: Apache-2.0
// The epochs and steps of a run. Pure, and safe for all values that are not negative: a number that
// does not fit into 64 bits becomes the largest one.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::train {

// As requested in TrainOptions.
struct RequestedLength {
  std::int64_t epochs = 0;  // 0: as many as needed for `steps`, or one
  std::int64_t steps = 0;   // over all epochs; 0: no limit
};

struct EpochSize {
  std::int64_t samples = 0;
  std::int64_t global_batch = 1;  // at least 1, at most `samples`
};

// The position from which this process trains.
struct Reached {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;  // samples of that epoch
  std::int64_t step = 0;
};

// The requested number of epochs, or the number that the requested steps need from here.
std::int64_t epochs_of_run(const RequestedLength& requested, const EpochSize& size,
                           const Reached& reached) noexcept;

// The last step of a run of requested.epochs epochs. Counted from here, because a resumed run may
// have another global batch.
std::int64_t planned_steps(const RequestedLength& requested, const EpochSize& size,
                           const Reached& reached) noexcept;

// Where a run is in its schedule, in steps of the global batch that it had when it began.
struct ScheduledStep {
  double done = 0;
  std::int64_t total = 0;
};

// A schedule follows the samples, not the steps, of which a run that resumes with another global
// batch makes more or fewer. If requested.steps ends the run with `first.global_batch`, the one it
// began with, the schedule follows the steps, whatever ends the run now. `requested`: without the
// epochs that follow from the steps. `first.global_batch` may be larger than the data is now.
ScheduledStep scheduled_step(const RequestedLength& requested, const EpochSize& first,
                             const Reached& reached) noexcept;

// One sentence if the other one of requested.epochs and requested.steps ends the run now than the
// one to whose end its schedule was planned; otherwise empty.
std::string why_schedule_is_cut(const RequestedLength& requested, const EpochSize& first,
                                const EpochSize& now, const Reached& reached);

}  // namespace ddp::train
