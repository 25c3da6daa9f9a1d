// SPDX-License-Identifier: Apache-2.0
// A transport for ranks that are threads of one process: messages are copied from one thread's
// memory to another's. It serves tests, which then run in milliseconds and under ThreadSanitizer,
// and a world of one rank.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

// Returns one transport for each of `ranks` threads, all connected with each other. Their shared
// state lives as long as any of them. `node_of(rank)` lets tests pretend that the ranks are on
// several machines; without it they are on one.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(
    int ranks, const std::function<int(int rank)>& node_of = {});

}  // namespace ddp::comm
