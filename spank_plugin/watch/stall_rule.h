// SPDX-License-Identifier: Apache-2.0
// When the ranks of a step are said to hang. An idle server and a program that sleeps look the
// same from outside, so a finding is a suspicion and a reason to speak, not to end a step.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/deadline.h"

namespace ddp::watch {

enum class RankState {
  running,
  finished,  // with exit status 0
  failed,
};

// What is known of a rank, see ProgressMeter: for how long something has been so.
struct RankReport {
  RankState state = RankState::running;
  std::optional<Clock::duration> quiet =
      {};  // of a rank that does not run: since its end, if known
  std::optional<Clock::duration> stopped = {};
  std::optional<Clock::duration> uninterruptible = {};
  bool is_alone = false;  // no other rank of its node runs
};

enum class FindingKind {
  none,     // a rank makes progress
  unknown,  // none does, but not for long enough; or one is stopped; or not all are known
  over,     // no rank runs any more
  stalled,  // no running rank makes progress
  stopped,  // a rank is stopped, and others wait, or its node has no other
};

struct Finding {
  FindingKind kind = FindingKind::none;
  Clock::duration length{};  // for how long it has been so
  // Numbers of ranks, in order: those that differ from the ones that wait.
  std::vector<std::size_t> stopped = {};
  std::vector<std::size_t> uninterruptible = {};
  std::vector<std::size_t> finished = {};
  std::vector<std::size_t> failed = {};
};

// Judges a step by what its ranks report, in their order. A finding must have lasted for `stall`,
// which is at least a second.
Finding find_stall(std::span<const RankReport> ranks, Clock::duration stall);

// Decides when to speak about the findings of one step.
class StallReports {
 public:
  enum class Speech {
    nothing,
    finding,   // of the given length
    progress,  // there is progress again, after the given length
  };
  struct Decision {
    Speech speech = Speech::nothing;
    Clock::duration length{};
  };

  // To be called with each finding in turn. A stall is told when it is found, at 5 minutes, at 10,
  // and so on, each time at twice the length. A length that has been told is not told again before
  // there was progress for 10 minutes, so that a program that pauses regularly is not told each
  // time.
  Decision update(const Finding& finding, Clock::time_point now);
  // The length of a stall that update() tells next; zero for any that is found.
  Clock::duration next() const noexcept { return next_; }

 private:
  Decision take_progress(Clock::time_point now);

  Clock::duration next_{};                // length of the stall that is told next
  std::optional<Clock::duration> stall_;  // the length of the one that has been told
  std::optional<Clock::time_point> progress_since_;
};

}  // namespace ddp::watch
