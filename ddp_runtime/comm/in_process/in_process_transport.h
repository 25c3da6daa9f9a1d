// Ranks as threads of one process: messages are copies from one thread's memory to another's.
// For tests, which then run in milliseconds and under ThreadSanitizer, and for a world of one.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ddp_runtime/comm/transport.h"

namespace ddp::comm {

// One transport for each of `ranks` threads, connected with each other. What they share lives as
// long as any of them. `node_of(rank)` lets tests pretend that the ranks are on several machines;
// without it they are on one.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(
    int ranks, const std::function<int(int rank)>& node_of = {});

}  // namespace ddp::comm
