// Why a collective does not end, from what all ranks say of themselves. Pure.
//
// A rank that waits knows only whom it waits for, and that rank may be waiting itself: in a ring
// everybody waits for a neighbor and only one of them is the cause. So rank 0 asks all.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "ddp_runtime/comm/diagnosis/flight_recorder.h"
#include "ddp_runtime/comm/failure/failure_state.h"
#include "ddp_runtime/comm/failure/liveness.h"

namespace ddp::comm {

struct RankStatus {
  int rank = 0;
  std::string who;                       // "node2, process 4711"; may be empty
  std::optional<RankSnapshot> snapshot;  // nothing: it did not answer
};

// Two ranks that called different collectives as the one of the same number of a channel:
// waiting longer cannot help. Nothing if there are none.
std::optional<Failure> find_disagreement(std::span<const RankStatus> statuses);

// Who is to blame after a wait that took too long. `report` is what the waiting rank said. In
// this order: ranks that called something else, ranks that do not answer, ranks that have begun
// fewer collectives and are in none, ranks that have begun fewer because they wait in another
// channel; if all are in the same one, the network.
Failure find_cause(std::span<const RankStatus> statuses, const Failure& report);

// All that is known, for people and programs to look at afterwards: schema slurm-ddp/failure/1.
// `losses`: all ranks that are lost, whether or not that was the first failure.
nlohmann::json failure_record(std::span<const RankStatus> statuses, const Failure& failure,
                              std::span<const Loss> losses = {});

}  // namespace ddp::comm
