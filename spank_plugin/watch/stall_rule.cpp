// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/stall_rule.h"

#include <algorithm>
#include <utility>

namespace ddp::watch {
namespace {

constexpr auto kShortestStall = std::chrono::seconds(1);
constexpr auto kSecondReport = std::chrono::minutes(5);
constexpr auto kCertainProgress = std::chrono::seconds(5);
constexpr auto kLastingProgress = std::chrono::minutes(10);

bool has_lasted(const std::optional<Clock::duration>& length, Clock::duration limit) noexcept {
  return length && *length >= limit;
}

// The ranks of a stall become quiet one after the other, and the one that is stopped or waits for a
// device may be the last.
bool has_lasted_nearly(const std::optional<Clock::duration>& length,
                       Clock::duration limit) noexcept {
  return has_lasted(length, limit / 2);
}

Finding with_ranks_of_note(std::span<const RankReport> ranks, Clock::duration stall) {
  Finding finding;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& report = ranks[rank];
    if (report.state == RankState::finished) finding.finished.push_back(rank);
    if (report.state == RankState::failed) finding.failed.push_back(rank);
    if (report.state != RankState::running) continue;
    if (has_lasted_nearly(report.stopped, stall)) finding.stopped.push_back(rank);
    if (has_lasted_nearly(report.uninterruptible, stall)) finding.uninterruptible.push_back(rank);
  }
  return finding;
}

Clock::duration longest_stop(std::span<const RankReport> ranks) {
  Clock::duration longest{};
  for (const auto& report : ranks) {
    if (report.state == RankState::running) {
      longest = std::max(longest, report.stopped.value_or(Clock::duration::zero()));
    }
  }
  return longest;
}

// Whether a rank is stopped, and another one is quiet or its node has no other: those of other
// nodes may wait busily.
bool has_stopped_others(std::span<const RankReport> ranks, Clock::duration stall) {
  bool is_stopped = false;
  bool is_waiting = false;
  for (const auto& report : ranks) {
    if (report.state != RankState::running) continue;
    if (has_lasted(report.stopped, stall)) {
      is_stopped = true;
      is_waiting = is_waiting || report.is_alone;
    } else {
      is_waiting = is_waiting || has_lasted(report.quiet, stall);
    }
  }
  return is_stopped && is_waiting;
}

}  // namespace

Finding find_stall(std::span<const RankReport> ranks, Clock::duration stall) {
  stall = std::max<Clock::duration>(stall, kShortestStall);
  auto shortest = Clock::duration::max();  // of the periods in which a rank has been quiet
  std::size_t running = 0;
  for (const auto& report : ranks) {
    const bool runs = report.state == RankState::running;
    running += runs ? 1 : 0;
    // Others may have waited for one that has just ended, and are about to continue.
    const auto unknown = runs ? Clock::duration::zero() : Clock::duration::max();
    shortest = std::min(shortest, report.quiet.value_or(unknown));
  }
  Finding finding = with_ranks_of_note(ranks, stall);
  if (running == 0) {
    finding.kind = FindingKind::over;
  } else if (shortest >= stall && finding.stopped.empty()) {
    finding.kind = FindingKind::stalled;
    finding.length = shortest;
  } else if (shortest >= stall || has_stopped_others(ranks, stall)) {
    finding.kind = FindingKind::stopped;
    finding.length = longest_stop(ranks);
  } else if (shortest > Clock::duration::zero() || !finding.stopped.empty()) {
    finding.kind = FindingKind::unknown;
  }
  return finding;
}

StallReports::Decision StallReports::update(const Finding& finding, Clock::time_point now) {
  if (finding.kind == FindingKind::none) return take_progress(now);
  if (finding.kind == FindingKind::over || finding.kind == FindingKind::unknown) return {};
  progress_since_.reset();
  if (stall_) stall_ = std::max(*stall_, finding.length);
  if (finding.length < next_) return {};
  stall_ = finding.length;
  next_ = kSecondReport;
  while (next_ <= finding.length) next_ *= 2;
  return {Speech::finding, finding.length};
}

StallReports::Decision StallReports::take_progress(Clock::time_point now) {
  if (!progress_since_) progress_since_ = now;
  const auto lasted = now - *progress_since_;
  if (lasted >= kLastingProgress) next_ = {};
  // A rank whose library gives up after a time limit, or that is told to end, is busy for a moment.
  if (!stall_ || lasted < kCertainProgress) return {};
  return {Speech::progress, *std::exchange(stall_, std::nullopt)};
}

}  // namespace ddp::watch
