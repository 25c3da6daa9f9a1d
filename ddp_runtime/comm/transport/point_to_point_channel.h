// SPDX-License-Identifier: Apache-2.0
// Messages between any two ranks of a group, in any order, for use by a thread of the caller. A
// server that answers requests from any rank, for example, cannot be written with collectives.
#pragma once

#include <memory>

#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/transport/link.h"
#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

struct PointToPointChannel {
  std::unique_ptr<Transport> transport;  // its messages cannot match any others
  FailureState* failures = nullptr;      // the group's; every wait must check it
  LinkLimits limits;                     // time limits of the waits
  // Memory into which a message may still arrive after the channel was abandoned because of a
  // failure.
  std::shared_ptr<const void> keep;
};

}  // namespace ddp::comm
