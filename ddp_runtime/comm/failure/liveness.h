// SPDX-License-Identifier: Apache-2.0
// Finds lost ranks that produce no error: a stopped process and a machine that has vanished do not
// close their connections. Pure.
//
// How a lost rank is told apart from a live one:
// - A connection that the other kernel closed or reset (FIN, RST) belongs to a process that has
//   exited. That is certain and known at once; it is not decided here.
// - Both ends send a heartbeat every second, from a thread that never computes. A rank from which
//   nothing has been received for `silence` is silent. Other errors of the connection (it timed
//   out, no route) mean no more than that: the rank reconnects as soon as the network lets it.
// - A silent rank is lost only if the data path stalls, too: some rank that can be heard has waited
//   for `LinkLimits::report_after` without anything moving. While all ranks make progress with each
//   other, so does the silent one, and only the management network is down; while all of them
//   compute, no rank is affected.
// - If the silent rank's kernel acknowledges what is sent to it, network and machine are up and the
//   process is stopped. Otherwise the machine is down or cut off.
//
// So with the default limits a stopped process or a vanished machine is reported within 10 s. A
// stop of a few seconds is tolerated, and so is an outage of any length of a network that carries
// no data. If one network carries both, an outage longer than `silence` ends the job.
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

// The limits for another `silence`, scaled so that the same number of heartbeats and reconnection
// attempts fit into it.
LivenessLimits limits_for(std::chrono::milliseconds silence);
// Limits for a world of `ranks` ranks: rank 0 should spend at most a few percent of a core on
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

// What is known about a rank that has not said goodbye.
struct SignsOfLife {
  int rank = 0;
  std::string who;
  std::chrono::milliseconds silent{0};  // since its last message
  bool acknowledges = false;            // its kernel has acknowledged everything sent to it
};

// The lost ranks; empty if none is certain to be lost. `stalled`: some rank that can be heard is
// waiting. Ranks that are about to be silent for as long are counted too: a machine takes all of
// its ranks down with it, and their last heartbeats were not sent at the same moment.
std::vector<Loss> find_lost(std::span<const SignsOfLife> ranks, bool stalled,
                            const LivenessLimits& limits);

// One sentence on all of them, grouped by node and kind. `silence`: see LivenessLimits.
std::string describe(std::span<const Loss> losses, std::chrono::milliseconds silence);

// Returns "node2" for "node2, process 4711".
std::string node_of(const std::string& who);

}  // namespace ddp::comm
