// SPDX-License-Identifier: Apache-2.0
// The last steps of several ranks as one trace, on the clock of the first of them.
//
// Note [Clocks of a merged trace]
// Ranks of one node read the same clock. The clocks of other nodes are aligned by the ends of the
// collectives that all ranks have in common (clock_fit.h); of a node, the first rank to leave a
// collective counts, since the others may only have got their processor later. If the ranks have no
// collectives in common, or the ends agree no better than to a millisecond, each node begins at 0,
// and the trace says so.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::profile {

struct RankTrace {
  int rank = 0;
  std::string node;   // may be empty
  std::string clock;  // ranks with the same text read the same clock
  std::vector<StepRecorder::TraceEvent> events;
};

// For sending it to another rank. parse_trace() throws a RuntimeError if the text is malformed.
std::string to_text(const RankTrace& trace);
RankTrace parse_trace(std::string_view text);

// Chromium's "Trace Event Format": complete events ("ph":"X") in microseconds since the first
// event. One process per rank; computation and communication are its two threads. "otherData" has
// "clocks": "one", "aligned" or "unknown", "residual_us" if they are aligned, and "reason" if they
// are unknown.
std::string merged_trace(const std::vector<RankTrace>& traces);

// The ranks whose trace is worth keeping, ascending: all of up to `most`, otherwise those with the
// least, the median and the most waiting, and the first one of each node, as far as there is room.
// `waiting`: seconds, by rank. `nodes`: their names, by rank.
std::vector<int> traced_ranks(const std::vector<double>& waiting,
                              const std::vector<std::string>& nodes, std::size_t most);

}  // namespace ddp::profile
