// SPDX-License-Identifier: Apache-2.0
// The options that a program can set for its collectives.
#pragma once

#include <functional>
#include <string>

#include "ddp_runtime/comm/transport/link_limits.h"
#include "ddp_runtime/comm/transport/network_model.h"

namespace ddp::comm {

struct GroupOptions {
  LinkLimits limits;
  // Always add in rank order. The result is then bitwise equal for any transport, segment size and
  // placement of ranks, and equal to that of one process that accumulates gradients.
  bool in_rank_order = false;
  // The network for which schedules are chosen. Must be the same on all ranks.
  NetworkSource network = {};
  // Called with lines for the user: on rank 0, from the communication thread, how ranks are
  // connected, and the schedules chosen for the network; on any rank, that it waits for others.
  std::function<void(const std::string&)> announce = nullptr;
};

}  // namespace ddp::comm
