// SPDX-License-Identifier: Apache-2.0
// What the guards of one node tell those of another about their ranks. Pure.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/watch/stall_rule.h"
#include "spank_plugin/watch/wait_channel.h"

namespace ddp::watch {

struct RankFacts {
  std::uint32_t rank = 0;
  pid_t task = 0;         // number of its process on this node
  pid_t stopped = 0;      // and of the one that is stopped, if any
  std::string node = {};  // may be empty
};

// The ranks of a node or of a whole step.
struct RanksReport {
  std::vector<RankReport> ranks;
  std::vector<RankFacts> facts;  // of the same ranks
  std::vector<RankWait> waits;   // of those that run; of torchrun's workers, if it runs

  void append(const RanksReport& others);
  // Orders them by rank. Returns false if one is there twice.
  bool sort();
};

// More would not fit into a message of a channel.
inline constexpr std::size_t kMaxReportText = 65'000;

// The ranks of one node as text, a line each. What they wait for is left out if the text would be
// too long without. Lengths of time are of the moment at which the text is written.
std::string to_text(const RanksReport& ranks);
// Returns nullopt for a text that to_text() does not write. The ranks are on `node`.
std::optional<RanksReport> parse_report(std::string_view text, const std::string& node);

}  // namespace ddp::watch
