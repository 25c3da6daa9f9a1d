// SPDX-License-Identifier: Apache-2.0
// What is said of ranks that stand still.
#pragma once

#include <string>
#include <string_view>

#include "spank_plugin/watch/node_report.h"
#include "spank_plugin/watch/stall_rule.h"

namespace ddp::guard {

// The sentences begin with these, contain them, or end with the last one.
inline constexpr std::string_view kNoProgress = "no rank has made progress for ";
inline constexpr std::string_view kStopped = " been stopped for ";
inline constexpr std::string_view kProgressAgain = "the ranks make progress again";
inline constexpr std::string_view kStillRuns = "; the step still runs";
// Or, also after the error of a rank, with this one.
inline constexpr std::string_view kEndsStep = "; ending the step";
inline constexpr std::string_view kEndsNode = "; ending the other ranks of this node";

// Returns the sentence, without a full stop; empty if there is nothing to say. The numbers of the
// finding refer to `ranks`; `noun` is what these are called: "rank". `ends`: the step ends
// therefore.
std::string stall_text(const watch::Finding& finding, const watch::StallReports::Decision& decision,
                       std::string_view noun, const watch::RanksReport& ranks, bool ends);

}  // namespace ddp::guard
