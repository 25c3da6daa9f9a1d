// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/chrome_trace.h"

#include "ddp_runtime/profile/merged_trace.h"

namespace ddp::profile {

std::string chrome_trace(const std::vector<StepRecorder::TraceEvent>& events, int rank) {
  return merged_trace({{rank, "", "", events}});
}

}  // namespace ddp::profile
