// SPDX-License-Identifier: Apache-2.0
// The variables, besides comm::kRunEventsVariable, by which ddp-run, its agents and the programs
// find each other.
#pragma once

namespace ddp::elastic {

// For agents: where ddp-run listens, "HOST[,HOST...]:PORT", and the key of this run.
inline constexpr const char* kHeadVariable = "DDP_RUN_HEAD";
inline constexpr const char* kKeyVariable = "DDP_RUN_KEY";
// For an agent whose launcher does not number ranks.
inline constexpr const char* kRankVariable = "DDP_RUN_RANK";
// For agents and programs: the number of this start of the program, from 1.
inline constexpr const char* kGenerationVariable = "DDP_RUN_GENERATION";

}  // namespace ddp::elastic
