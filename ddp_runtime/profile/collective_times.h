// A collective's time on this rank, split into waiting for the last rank and the wire.
//
// Note [Waiting and the wire]
// Ranks enter a collective when they are ready and leave it nearly together. The rank that came
// last had to wait for nobody: the shortest duration over the ranks is what the collective itself
// takes, the wire, and what another rank spends beyond that it waits for the last one. No clocks
// have to agree for this. The rank with the least waiting is the one that the others wait for.
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
  Interval exposed;  // what of the step was waiting for them: not hidden by backward
};

// Those of the recorder's last step.
StepCollectives last_collectives(const StepRecorder& recorder);

struct WaitSplit {
  double waiting = 0;          // for the last rank, hidden or not
  double exposed_waiting = 0;  // of that, within `exposed`
  double wire = 0;
};

// `least[i]`: the shortest duration of collective i over the ranks, in seconds.
WaitSplit split_waiting(const StepCollectives& step, std::span<const float> least);

// What a rank waited over a run, and how often it was late.
struct WaitTotals {
  std::size_t steps = 0;  // that were compared
  double exposed_waiting = 0;
  double wire = 0;
  std::size_t late_steps = 0;  // in which it waited less than the ranks on average

  void add(const WaitSplit& step, double mean_waiting);
};

}  // namespace ddp::profile
