// SPDX-License-Identifier: Apache-2.0
// Brings the last steps of all ranks to rank 0, as one trace.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::train {

// Of more ranks, only some are in the trace; see profile::traced_ranks().
inline constexpr std::size_t kMaxTracedRanks = 64;

// Collective. Returns the trace on rank 0, and an empty text on the others, which only send theirs.
// `ranks`: those of run.json, on rank 0. `node`: the name of this machine.
std::string gather_trace(comm::Group& group, const profile::StepRecorder& recorder,
                         const nlohmann::json& ranks, const std::string& node);

}  // namespace ddp::train
