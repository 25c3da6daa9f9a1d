// SPDX-License-Identifier: Apache-2.0
// The failure of one rank, as reported to the other ranks.
#pragma once

#include <cstdint>
#include <string>

#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::comm {

// The cause of the job's end, for programs that decide whether and how to continue.
enum class FailureKind : std::uint8_t {
  error,         // an exception
  usage,         // a user error
  killed,        // a process exited without a goodbye
  stopped,       // a process is stopped, but its machine is up
  unreachable,   // a machine is down or cut off
  silent,        // a rank does not answer rank 0's status requests
  absent,        // a rank is busy outside the collective in which the others wait
  disagreement,  // the ranks called different collectives
  network,       // all ranks called the same collective, but messages do not arrive
};
const char* to_string(FailureKind kind);

struct Failure {
  int rank = -1;      // the rank that failed
  std::string text;   // that rank's own error message, unless the rank is lost
  bool lost = false;  // the rank died; the text was written by the rank that noticed
  // Possibly only a symptom: rank 0 asks all ranks before it names the cause.
  Symptom symptom = Symptom::none;
  // A UsageError: all ranks exit with 2.
  bool is_usage_error = false;
  FailureKind kind = FailureKind::error;
};

}  // namespace ddp::comm
