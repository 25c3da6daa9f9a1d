// SPDX-License-Identifier: Apache-2.0
// How SLURM ended a job or a step, and what a log has from before and after that.
#pragma once

#include <string_view>
#include <vector>

namespace ddp::post_mortem {

// An end from outside, in SLURM's words for a job's state and in its lines in a log.
struct OutsideEnd {
  std::string_view state;
  std::string_view line;  // empty if it leaves none
  std::string_view what;  // "the job reached its time limit"
  std::string_view remedy;
  // An effect of what the program did, unlike the other ends.
  bool is_lack_of_memory = false;
};

// Returns null for another state, such as FAILED.
const OutsideEnd* end_by_state(std::string_view state) noexcept;

// The log of a batch script has one step after the other. One part reaches from the start, or from
// where the step before was over, until SLURM ended a step or the job.
struct LogPart {
  std::string_view own;                        // printed before that end
  std::string_view answer;                     // and after it, because of it
  const OutsideEnd* end = nullptr;             // null if there was none
  const OutsideEnd* lack_of_memory = nullptr;  // reported in `own`
};

// Returns at least one part. The parts refer to the text.
std::vector<LogPart> parts_of_log(std::string_view text);

// srun's line about tasks that ended badly: "srun: error: node2: task 1: Killed". Returns what
// follows "srun: error: ", or an empty text for another line.
std::string_view task_report(std::string_view line) noexcept;

// Calls `use` with each line until it returns true. Returns whether it did.
template <typename Use>
bool any_line(std::string_view text, Use use) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
    if (use(line)) return true;
  }
  return false;
}

}  // namespace ddp::post_mortem
