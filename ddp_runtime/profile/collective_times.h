// SPDX-License-Identifier: Apache-2.0
// A collective's time on this rank, split into waiting for the last rank and transfer time.
//
// Note [Waiting and the wire]
// Ranks enter a collective when they are ready and leave it almost together. The rank that enters
// last does not wait, so the shortest duration over the ranks is the time on the wire; any excess
// on another rank was spent waiting for the last one. This does not need synchronized clocks. The
// rank with the least waiting is the one that the others wait for.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ddp_runtime/profile/interval.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::profile {

// The collectives of one step, in the order in which all ranks ran them.
struct StepCollectives {
  std::vector<Interval> times;
  std::vector<Interval> exposed;  // the times in which the step waited for them
};

// Returns the collectives of one of the recorder's steps: `age` 1 is the last one, 2 the one
// before. None of a step whose times the device has not given yet, nor of one that is too old.
StepCollectives collectives_of(const StepRecorder& recorder, std::size_t age);

struct WaitSplit {
  double waiting = 0;          // waiting for the last rank, hidden or not
  double exposed_waiting = 0;  // the part of `waiting` within `exposed`
  double wire = 0;
};

// `least[i]`: the shortest duration of collective i over the ranks, in seconds.
WaitSplit split_waiting(const StepCollectives& step, std::span<const float> least);

// How long a rank waited over a run, and how often it was late.
struct WaitTotals {
  std::size_t steps = 0;  // steps that were compared
  double exposed_waiting = 0;
  double wire = 0;
  std::size_t late_steps = 0;  // steps in which it waited less than the average rank

  void add(const WaitSplit& step, double mean_waiting);
};

}  // namespace ddp::profile
