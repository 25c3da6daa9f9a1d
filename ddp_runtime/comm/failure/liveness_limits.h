// SPDX-License-Identifier: Apache-2.0
// The time limits after which a silent rank is considered lost; see liveness.h.
#pragma once

#include <chrono>

namespace ddp::comm {

struct LivenessLimits {
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  std::chrono::milliseconds silence = std::chrono::seconds(8);
  // A rank reconnects after this much silence if the peer's kernel is silent, too.
  std::chrono::milliseconds reconnect = std::chrono::seconds(3);
  // A process that is still running this long after a failure, for example blocked in MPI, is
  // terminated.
  std::chrono::milliseconds exit = std::chrono::minutes(1);
};

}  // namespace ddp::comm
