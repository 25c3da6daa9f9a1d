// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/rank_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <vector>

#include "spank_plugin/guard/stall_text.h"
#include "spank_plugin/watch/wait_channel.h"

namespace ddp::guard {
namespace {

constexpr auto kInterval = std::chrono::seconds(1);
// Early, because a rank that hangs soon after its start must have been seen busy before.
constexpr auto kFirstLook = std::chrono::milliseconds(200);
// Since a guard's last look. It then was stopped, or has ended without a word.
constexpr auto kAsleep = std::chrono::seconds(5);

std::int64_t milliseconds(const std::optional<Clock::time_point>& time) {
  if (!time) return 0;
  const auto since_start = time->time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_start).count();
}

std::optional<Clock::duration> length(const std::atomic<std::int64_t>& since, std::int64_t now) {
  const std::int64_t start = since.load(std::memory_order_relaxed);
  if (start == 0) return std::nullopt;
  return std::chrono::milliseconds(std::max<std::int64_t>(now - start, 0));
}

bool is_gone(pid_t process) noexcept {
  return kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

RankWatch::RankWatch(pid_t task, const GuardOptions& options, NodeRecord& record)
    : task_(task), options_(options), record_(record), next_look_(Clock::now() + kFirstLook) {
  if (options.local_rank >= options.local_task_count ||
      options.local_task_count > NodeRecord::kMaxRanks) {
    next_look_ = Deadline::max();  // a node with so many ranks is not watched
    return;
  }
  RankSlot& slot = record_.slot(options.local_rank);
  slot.rank = options.rank;
  slot.guard = getpid();
  slot.task = task;
  write_slot({});
  slot.state = RankSlot::running;
}

void RankWatch::write_slot(const std::vector<watch::Process>& processes) {
  RankSlot& slot = record_.slot(options_.local_rank);
  slot.quiet_since = milliseconds(meter_.quiet_since());
  slot.stopped_since = milliseconds(meter_.stopped_since());
  slot.uninterruptible_since = milliseconds(meter_.uninterruptible_since());
  // An agent of torchrun waits for its workers, which are the ranks.
  const bool is_asked = meter_.quiet_since() && !options_.is_agent;
  slot.set_wait(is_asked ? watch::read_wait_channel("/proc", processes) : "");
  slot.seen_at = milliseconds(Clock::now());
}

std::string RankWatch::look() {
  next_look_ = Clock::now() + kInterval;
  watch::Reading reading{Clock::now(), watch::read_processes("/proc", getpid(), task_), {}};
  if (meter_.needs_traffic(reading)) reading.traffic = watch::read_tcp_traffic(reading.processes);
  meter_.add(reading);
  write_slot(reading.processes);
  watch::Finding finding;
  if (read_slots()) finding = watch::find_stall(ranks_, options_.stall);
  // Ranks that wait here may wait for one on another node that works.
  const bool is_whole_step = options_.local_task_count == options_.task_count;
  if (finding.kind == watch::FindingKind::stalled && !is_whole_step) finding = {};
  return speech(finding, reports_.update(finding));
}

bool RankWatch::read_slots() {
  const std::int64_t now = milliseconds(Clock::now());
  ranks_.clear();
  for (std::size_t i = 0; i < options_.local_task_count; ++i) {
    const RankSlot& slot = record_.slot(i);
    watch::RankReport report;
    switch (slot.state) {
      case RankSlot::finished:
        report.state = watch::RankState::finished;
        break;
      case RankSlot::failed:
        report.state = watch::RankState::failed;
        break;
      case RankSlot::running:
        if (now - slot.seen_at > std::chrono::milliseconds(kAsleep).count()) {
          if (!is_gone(slot.guard)) return false;
          report.state = watch::RankState::failed;  // the kernel ended the task with its guard
          break;
        }
        report.quiet = length(slot.quiet_since, now);
        report.stopped = length(slot.stopped_since, now);
        report.uninterruptible = length(slot.uninterruptible_since, now);
        break;
      default:
        return false;
    }
    ranks_.push_back(report);
  }
  return true;
}

std::string RankWatch::speech(const watch::Finding& finding,
                              const watch::StallReports::Decision& decision) const {
  // All guards come to the same decision; the first one speaks.
  const auto first =
      std::ranges::find(ranks_, watch::RankState::running, &watch::RankReport::state);
  if (first - ranks_.begin() != static_cast<std::ptrdiff_t>(options_.local_rank)) return "";
  std::vector<RankFacts> facts;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const RankSlot& slot = record_.slot(i);
    const bool is_waiting = ranks_[i].state == watch::RankState::running;
    facts.push_back({slot.rank, slot.task, is_waiting ? slot.wait() : ""});
  }
  return stall_text(finding, decision, facts, options_.node);
}

void RankWatch::end(int status) {
  if (next_look_ == Deadline::max()) return;
  record_.slot(options_.local_rank).state = status == 0 ? RankSlot::finished : RankSlot::failed;
}

}  // namespace ddp::guard
