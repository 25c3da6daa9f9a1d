// SPDX-License-Identifier: Apache-2.0
// Training steps of one rank as a trace for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::profile {

// Chromium's "Trace Event Format": complete events ("ph":"X") in microseconds since the first
// event. One process per rank; computation and communication are its two threads.
std::string chrome_trace(const std::vector<StepRecorder::TraceEvent>& events, int rank);

}  // namespace ddp::profile
