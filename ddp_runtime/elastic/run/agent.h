// SPDX-License-Identifier: Apache-2.0
// Starts the program of one rank, and tells ddp-run how it fares. One agent per rank, because only
// a parent learns how a process has ended, and only something on the node can show that the node is
// there.
//
// The program may write events to the descriptor in DDP_RUN_EVENTS, one JSON object per line:
//   {"event": "progress", "step": 12}
//   {"event": "kept", "tier": "disk", "step": 10}    a state that the program resumes from
//   {"event": "told", "rank": 3, "text": "..."}      an error, and whose it is; "usage_error": true
//                                                    if the command line is wrong
//
// A program that stays stopped is told as a silent rank.
//
// If ddp-run is gone, the program will not be started again: the agent asks it to save and to end,
// and ends it after kLastGrace. It then removes what the program has kept in the node's memory.
//
// Note [A cut link]
// If the link to ddp-run is cut, ddp-run will start the program elsewhere, 10 s after it has heard
// anything, plus the time in which it ends the old processes (Head, RunLoop). Until then this rank
// must be gone, or it would overwrite what the new one saves. Only the kernel knows a cut link from
// a ddp-run that does not run for a while: it gets no acknowledgments. So the program is killed,
// and not asked, kCutAfter after the last one. So is the program of an agent that did not run for
// so long, if ddp-run has closed the connection meanwhile; of one that was suspended together with
// ddp-run, it has not.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/secret/key.h"

namespace ddp::elastic {

struct AgentSettings {
  std::vector<std::string> hosts;  // of ddp-run
  std::uint16_t port = 0;
  Key key{};
  int generation = 0;
  int rank = 0;
  std::string node;
  std::string step;  // of SLURM, "JOB.STEP"; empty elsewhere
};

// From the environment. Throws UsageError if ddp-run has not started this process.
AgentSettings agent_settings_from_environment(int rank);

// Returns the exit code of the program, or 128 + the signal that ended it. Throws RuntimeError if
// ddp-run does not answer, or no process can be started.
int run_agent(const AgentSettings& settings, const std::vector<std::string>& program);

inline constexpr std::chrono::seconds kHeartbeat{1};
inline constexpr std::chrono::seconds kHeadSilence{30};
inline constexpr std::chrono::seconds kCutAfter{7};
inline constexpr std::chrono::seconds kLastGrace{10};

}  // namespace ddp::elastic
