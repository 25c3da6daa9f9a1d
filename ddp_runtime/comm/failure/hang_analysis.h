// SPDX-License-Identifier: Apache-2.0
// Finds out why a collective hangs, from the status of all ranks. Pure.
//
// A waiting rank knows only which rank it is waiting for, and that rank may be waiting as well: in
// a ring, every rank waits for a neighbor, but only one of them is the cause. So rank 0 asks all
// ranks.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "ddp_runtime/comm/failure/liveness.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/group/flight_recorder.h"

namespace ddp::comm {

struct RankStatus {
  int rank = 0;
  std::string who;                       // "node2, process 4711"; may be empty
  std::optional<RankSnapshot> snapshot;  // nullopt if the rank did not answer
};

// Finds ranks that called different collectives under the same number of a channel, so that they
// would wait forever. Returns nullopt if there are none.
std::optional<Failure> find_disagreement(std::span<const RankStatus> statuses);

// Finds the cause of a wait that took too long. `report` comes from the waiting rank. Blames, in
// this order: ranks that called a different collective, ranks that do not answer, ranks that have
// begun fewer collectives and are not inside one, ranks that wait for each other in groups of some
// of the ranks, ranks that have begun fewer because they wait in another channel. If all ranks are
// in the same collective, blames the network.
Failure find_cause(std::span<const RankStatus> statuses, const Failure& report);

// The record of a failure for later analysis by people and programs, in the schema
// slurm-ddp/failure/1. `losses`: all lost ranks, even if no loss was the first failure.
nlohmann::json failure_record(std::span<const RankStatus> statuses, const Failure& failure,
                              std::span<const Loss> losses = {});

}  // namespace ddp::comm
