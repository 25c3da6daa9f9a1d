// SPDX-License-Identifier: Apache-2.0
// Whether a thread waits for a message. Polling takes a core from ranks that compute, so a
// communication thread polls often only if a thread waits.
#pragma once

#include <functional>

#include "ddp_runtime/comm/group/work.h"

namespace ddp::comm {

// Calls `hurry` when a thread begins to wait for the work, unless it is done.
void call_on_wait(Work::State& state, std::function<void()> hurry);
bool is_awaited(Work::State& state);

}  // namespace ddp::comm
