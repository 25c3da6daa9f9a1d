// SPDX-License-Identifier: Apache-2.0
// Finds lost ranks that cause no error: a stopped process and a vanished machine do not close their
// connections. Pure.
//
// The hub distinguishes lost ranks from live ones as follows:
// - A connection that the other kernel closed or reset (FIN, RST) belongs to a process that has
//   exited. That is certain and known immediately, so this file does not decide it.
// - Both ends send a heartbeat every second, from a thread that never computes. A rank is silent if
//   nothing has been received from it for `silence`. Other errors of the connection (timeout, no
//   route) only count as silence: the rank reconnects as soon as the network works again.
// - A silent rank is lost only if the data path stalls, too: some rank that can be heard has waited
//   for `LinkLimits::report_after` without progress. While all ranks make progress with each other,
//   the silent rank does too, and only the management network is down. While all ranks compute, no
//   rank is affected.
// - If the silent rank's kernel acknowledges the data sent to it, the network and the machine are
//   up and the process is stopped. Otherwise the machine is down or cut off.
//
// With the default limits, a stopped process or a vanished machine is reported within 10 s. A stop
// of a few seconds is tolerated, and so is an outage of any length if the network carries only the
// error channel. If one network carries the error channel and the data, an outage longer than
// `silence` ends the job.
//
// All times are from a RunningClock: a job that is suspended as a whole continues when it is
// resumed.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/failure/liveness_limits.h"

namespace ddp::comm {

// Scales all limits to a different `silence`, so that it has room for the same number of heartbeats
// and reconnection attempts.
LivenessLimits limits_for(std::chrono::milliseconds silence);
// Limits for a world of `ranks` ranks, so that rank 0 spends at most a few percent of a core on
// heartbeats.
LivenessLimits scaled(LivenessLimits limits, int ranks);

enum class LossKind : std::uint8_t {
  killed,       // its connection closed without a goodbye
  stopped,      // silent, but its machine answers
  unreachable,  // silent, and its machine is silent, too
};
const char* to_string(LossKind kind);

// A lost rank. `who` is its own description: "node2, process 4711".
struct Loss {
  int rank = 0;
  std::string who;
  LossKind kind = LossKind::killed;
};

// The state of a rank that has not sent a goodbye.
struct SignsOfLife {
  int rank = 0;
  std::string who;
  std::chrono::milliseconds silent{0};  // since its last message
  bool acknowledges = false;            // its kernel has acknowledged everything sent to it
};

// Returns the lost ranks; empty if no rank is certain to be lost. `stalled`: some rank that can be
// heard is waiting. Includes ranks that will soon have been silent for as long: a machine takes
// down all of its ranks together, but they did not send their last heartbeats at the same moment.
std::vector<Loss> find_lost(std::span<const SignsOfLife> ranks, bool stalled,
                            const LivenessLimits& limits);

// One sentence about all losses, grouped by node and kind. `silence`: see LivenessLimits.
std::string describe(std::span<const Loss> losses, std::chrono::milliseconds silence);

// Returns "node2" for "node2, process 4711".
std::string node_of(const std::string& who);

}  // namespace ddp::comm
