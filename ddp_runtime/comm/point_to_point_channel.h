// Messages between the ranks of a group that follow no common order, for a thread of the caller's
// own: a server that answers whoever asks cannot be written with collectives.
#pragma once

#include <memory>

#include "ddp_runtime/comm/failure/failure_state.h"
#include "ddp_runtime/comm/link.h"
#include "ddp_runtime/comm/transport.h"

namespace ddp::comm {

struct PointToPointChannel {
  std::unique_ptr<Transport> transport;  // its messages meet nobody else's
  FailureState* failures = nullptr;      // the group's: every wait must look here
  LinkLimits limits;                     // how long a wait may take
  // Memory in which a message may still arrive after the line was given up because of a failure.
  std::shared_ptr<const void> keep;
};

}  // namespace ddp::comm
