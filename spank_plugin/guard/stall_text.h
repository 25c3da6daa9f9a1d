// SPDX-License-Identifier: Apache-2.0
// What is said of ranks that stand still.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "spank_plugin/watch/stall_rule.h"
#include "spank_plugin/watch/wait_channel.h"

namespace ddp::guard {

struct RankFacts {
  std::uint32_t rank = 0;
  pid_t task = 0;     // number of its process on this node
  pid_t stopped = 0;  // and of the one that is stopped, if any
};

// The sentences begin with these, contain them, or end with the last one.
inline constexpr std::string_view kNoProgress = "no rank has made progress for ";
inline constexpr std::string_view kStopped = " been stopped for ";
inline constexpr std::string_view kProgressAgain = "the ranks make progress again";
inline constexpr std::string_view kStillRuns = "; the step still runs";

// The tasks to which the numbers of a finding refer.
struct NamedRanks {
  std::string_view noun;  // "rank"
  std::string_view node;  // may be empty
  std::span<const RankFacts> facts;
  std::span<const watch::RankWait> waits;  // of those that run; of torchrun's workers, if it runs
};

// Returns the sentence, without a full stop; empty if there is nothing to say.
std::string stall_text(const watch::Finding& finding, const watch::StallReports::Decision& decision,
                       const NamedRanks& ranks);

}  // namespace ddp::guard
