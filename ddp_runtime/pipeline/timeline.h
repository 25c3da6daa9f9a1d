// SPDX-License-Identifier: Apache-2.0
// What the ranks of a pipeline did in a pass, as a chart, and which stage holds up the others.
// Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/pipeline/operation_time.h"
#include "ddp_runtime/pipeline/schedule.h"
#include "ddp_runtime/pipeline/simulate.h"

namespace ddp::pipeline {

// Of a rank, in the order in which they ran: PipelineTimes::operations.
using RankTimes = std::vector<OperationTime>;

// The times of all ranks since the first rank began. Each rank knows only its own clock, so a rank
// is moved to the earliest place at which it has received nothing before it was sent.
std::vector<RankTimes> aligned(std::vector<RankTimes> ranks);

// One line per rank, `columns` characters long: the last digit of the micro-batch in forward, a
// letter (a for 0) in backward, its second part in capitals, and a dot while the rank waits.
std::string draw_timeline(const std::vector<RankTimes>& ranks, int columns = 100);

// How the work is divided.
struct WorkDivision {
  std::vector<StageTimes> stages;  // means over micro-batches
  std::vector<double> busy;        // of each rank
  int heaviest = 0;                // the rank that is busiest
  double span = 0;                 // that these times predict
  double balanced_span = 0;        // if all stages took the mean time
};
WorkDivision division_of(const std::vector<RankTimes>& ranks, Schedule schedule,
                         const Layout& layout);
// "rank 1 (stage 1) computes for 82.0 ms, 14 % more than the mean; ..."
std::string describe(const WorkDivision& division, const Layout& layout);

}  // namespace ddp::pipeline
