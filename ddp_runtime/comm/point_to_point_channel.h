// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks of a group that follow no common order, for a thread of the caller: a
// server that answers any rank that sends a request cannot be written with collectives.
#pragma once

#include <memory>

#include "ddp_runtime/comm/failure/failure_state.h"
#include "ddp_runtime/comm/link.h"
#include "ddp_runtime/comm/transport.h"

namespace ddp::comm {

struct PointToPointChannel {
  std::unique_ptr<Transport> transport;  // its messages cannot match any others
  FailureState* failures = nullptr;      // the group's: every wait must look here
  LinkLimits limits;                     // how long a wait may take
  // Memory into which a message may still arrive after the channel was abandoned because of a
  // failure.
  std::shared_ptr<const void> keep;
};

}  // namespace ddp::comm
