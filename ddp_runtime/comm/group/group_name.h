// SPDX-License-Identifier: Apache-2.0
// How a group or a channel is named in errors and in the flight recorder. Pure.
#pragma once

#include <span>
#include <string>

#include "ddp_runtime/comm/group/flight_recorder.h"

namespace ddp::comm {

// The parts of the texts that describe an operation: "norm all_reduce #3 (statistics) of group
// 'stage 1' (ranks 2 and 3)".
struct GroupName {
  std::string channel = kMainChannel;  // in the flight recorder
  std::string before = {};             // "norm "
  std::string after = {};              // " of group 'stage 1' (ranks 2 and 3)"
  std::string thread = "ddp-comm";     // of the communication thread
  bool of_some_ranks = false;

  // The name of the group's channel `name`.
  GroupName of_channel(const std::string& name) const;
};

// The name of a group of some of the job's ranks. `name` may be empty. `number` counts groups of
// the same ranks with the same name, from 1; the names of other groups differ anyway.
GroupName name_of_part(const std::string& name, std::span<const int> world_ranks, int number = 1);

// "rank 3", "ranks 0, 2 and 5", "ranks 0 to 7", "ranks 0 to 56 in steps of 8", or, if there are
// more than 8 without a pattern, "ranks 0, 1, 3, 4, 9, 10, 12, 15 and 20 more".
std::string describe_ranks(std::span<const int> ranks);

}  // namespace ddp::comm
