// Steps as a trace that chrome://tracing and ui.perfetto.dev open.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::profile {

// The "Trace Event Format" of Chromium, complete events ("ph":"X") in microseconds from the first
// event. One process per rank; computing and communication are its two threads.
std::string chrome_trace(const std::vector<StepRecorder::TraceEvent>& events, int rank);

}  // namespace ddp::profile
