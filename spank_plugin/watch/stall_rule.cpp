// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/stall_rule.h"

#include <algorithm>
#include <utility>

namespace ddp::watch {
namespace {

constexpr auto kShortestStall = std::chrono::seconds(1);
constexpr auto kSecondReport = std::chrono::minutes(5);

bool has_lasted(const std::optional<Clock::duration>& length, Clock::duration limit) noexcept {
  return length && *length >= limit;
}

// A rank stops others, or is seen in a state, only some time after the first of them wait.
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

// Returns the length of the longest stop if another rank is quiet or there is no other.
std::optional<Clock::duration> length_of_stop(std::span<const RankReport> ranks,
                                              Clock::duration stall) {
  std::optional<Clock::duration> longest;
  std::size_t waiting = 0;
  std::size_t running = 0;
  for (const auto& report : ranks) {
    if (report.state != RankState::running) continue;
    ++running;
    if (has_lasted(report.stopped, stall)) {
      longest = std::max(longest, report.stopped);
    } else if (has_lasted(report.quiet, stall)) {
      ++waiting;
    }
  }
  return waiting > 0 || running == 1 ? longest : std::nullopt;
}

}  // namespace

Finding find_stall(std::span<const RankReport> ranks, Clock::duration stall) {
  stall = std::max<Clock::duration>(stall, kShortestStall);
  auto shortest = Clock::duration::max();  // of the periods in which a rank has been quiet
  std::size_t running = 0;
  for (const auto& report : ranks) {
    if (report.state != RankState::running) continue;
    ++running;
    shortest = std::min(shortest, report.quiet.value_or(Clock::duration::zero()));
  }
  Finding finding = with_ranks_of_note(ranks, stall);
  if (running == 0) {
    finding.kind = FindingKind::over;
  } else if (shortest >= stall) {
    finding.kind = finding.stopped.empty() ? FindingKind::stalled : FindingKind::stopped;
    finding.length = shortest;
  } else if (const auto stop = length_of_stop(ranks, stall)) {
    finding.kind = FindingKind::stopped;
    finding.length = *stop;
  }
  return finding;
}

StallReports::Decision StallReports::update(const Finding& finding) {
  if (finding.kind == FindingKind::over) return {};
  if (finding.kind == FindingKind::none) {
    const auto length = std::exchange(stall_, std::nullopt);
    return length ? Decision{Speech::progress, *length} : Decision{};
  }
  if (stall_) stall_ = std::max(*stall_, finding.length);
  if (finding.length < next_) return {};
  stall_ = finding.length;
  next_ = kSecondReport;
  while (next_ <= finding.length) next_ *= 2;
  return {Speech::finding, finding.length};
}

}  // namespace ddp::watch
