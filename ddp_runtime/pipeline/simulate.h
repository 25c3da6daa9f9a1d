// SPDX-License-Identifier: Apache-2.0
// How long a step of a pipeline takes, and how long ranks are idle. Pure.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ddp_runtime/pipeline/schedule.h"

namespace ddp::pipeline {

// Of one stage and micro-batch, in any unit. Backward takes the sum of the two gradients.
struct StageTimes {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
};

struct Simulation {
  double span = 0;           // from the first operation to the end of the last one
  std::vector<double> busy;  // per rank
  double bubble = 0;         // idle part of all ranks' time: 0 to 1
  std::vector<int> kept;     // per rank: the most pairs of a stage and a micro-batch at once
};

// `message` is the time from the end of an operation until the next rank has its result, while both
// may compute. Throws std::logic_error if an operation waits for one that never comes.
Simulation simulate(Schedule schedule, const Layout& layout, std::span<const StageTimes> times,
                    double message = 0);
// For operations that take different times.
using OperationSeconds = std::function<double(const Operation&)>;
Simulation simulate(Schedule schedule, const Layout& layout, const OperationSeconds& seconds,
                    double message = 0);
// For stages that all take the same time.
Simulation simulate(Schedule schedule, const Layout& layout, const StageTimes& times = {});

}  // namespace ddp::pipeline
