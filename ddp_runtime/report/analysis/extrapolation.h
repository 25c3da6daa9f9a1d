// SPDX-License-Identifier: Apache-2.0
// What a sweep says about more ranks than it has measured, up to four times as many, and whether it
// can say anything. No side effects.
//
// Note [Extrapolation]
// The time of a step is computation, including all that is not communication, plus the
// communication that backward does not hide. Each is fitted alone (growth_fit.h), because the noise
// of the computation would hide small communication times. Runs on one node show nothing about the
// network between nodes, so their communication is left out.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/report/analysis/scaling.h"

namespace ddp::report {

struct Expected {
  int ranks = 1;
  double seconds = 0;  // of a step
  Interval seconds_interval;
  double efficiency = 0;
  Interval efficiency_interval;  // contains the truth in 90 of 100 sweeps if the models fit
  double communication = 0;      // fraction of the step
};

struct Extrapolation {
  std::string refusal;           // why there is none, a sentence; empty if there is one
  std::vector<Expected> points;  // in order of ranks
  std::string computation;       // "4.1 ms + 0.52 ms log2(N)"
  std::string communication;
};

// The runs must be of the same work.
Extrapolation extrapolate(const Scaling& scaling);

}  // namespace ddp::report
