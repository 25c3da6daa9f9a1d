// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/rank_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "spank_plugin/guard/stall_text.h"
#include "spank_plugin/watch/wait_channel.h"

namespace ddp::guard {
namespace {

constexpr auto kInterval = std::chrono::seconds(1);
constexpr auto kLongestInterval = std::chrono::seconds(4);
// At most this share of a processor is used: one part in so many.
constexpr int kShare = 50;
// Each time, the kernel walks through the table of all its connections: some milliseconds. A
// shorter stall must be seen sooner.
constexpr auto kTrafficInterval = std::chrono::seconds(5);
constexpr int kTrafficShare = 12;
// Early, because a rank that hangs soon after its start must have been seen busy before.
constexpr auto kFirstLook = std::chrono::milliseconds(200);
// Since a guard's last look. It then was stopped, or has ended without a word.
constexpr auto kAsleep = std::chrono::seconds(5);
// The question where a rank stands disturbs it, so it is asked only this long before a report: two
// looks of each guard, and a moment.
constexpr auto kTimeToAnswer = 2 * kLongestInterval + std::chrono::seconds(1);
constexpr int kSearches = 60;

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

// What a guard wrote of its rank; nullopt if it is not known what that does.
std::optional<watch::RankReport> report_in(const RankSlot& slot, std::int64_t now) {
  using watch::RankState;
  watch::RankReport report;
  switch (slot.state) {
    case RankSlot::finished:
      report.state = RankState::finished;
      return report;
    case RankSlot::failed:
      report.state = RankState::failed;
      return report;
    case RankSlot::running:
      break;
    default:
      return std::nullopt;
  }
  if (now - slot.seen_at > std::chrono::milliseconds(kAsleep).count()) {
    if (!is_gone(slot.guard)) return std::nullopt;
    report.state = RankState::failed;  // the kernel ended the task with its guard
    return report;
  }
  report.quiet = length(slot.quiet_since, now);
  report.stopped = length(slot.stopped_since, now);
  report.uninterruptible = length(slot.uninterruptible_since, now);
  return report;
}

}  // namespace

RankWatch::RankWatch(pid_t task, const GuardOptions& options, NodeRecord& record)
    : task_(task),
      options_(options),
      record_(record),
      meter_(std::min<Clock::duration>(options.stall / kTrafficShare, kTrafficInterval)),
      has_slot_(options.local_rank < options.local_task_count &&
                options.local_task_count <= NodeRecord::kMaxRanks) {
  if (!has_slot_) return;
  if (!record_.is_shared() && !options_.record_name.empty()) searches_left_ = kSearches;
  next_look_ = Clock::now() + kFirstLook;
  begin_slot();
}

void RankWatch::begin_slot() noexcept {
  RankSlot& slot = own_slot();
  slot.rank = options_.rank;
  slot.guard = getpid();
  slot.task = task_;
  slot.seen_at = milliseconds(Clock::now());
  slot.state = RankSlot::running;
}

void RankWatch::find_record() {
  --searches_left_;
  const auto files = find_node_records("/proc", options_.record_name);
  const bool has_joined = std::ranges::any_of(files, [this](const FileDescriptor& file) {
    return record_.join(file.get(), options_.local_rank);
  });
  if (!has_joined) return;
  searches_left_ = 0;
  begin_slot();
}

std::string RankWatch::look() {
  const auto start = Clock::now();
  if (searches_left_ > 0) find_record();
  stacks_.read();
  watch::Reading reading{start, watch::read_processes("/proc", getpid(), task_), {}};
  stacks_.subtract_answers(reading.processes);
  // Its agent is not a worker: it asks for their state, and sends heartbeats.
  if (options_.is_agent && !reading.processes.empty()) {
    reading.processes.erase(reading.processes.begin());
  }
  if (meter_.needs_traffic(reading)) reading.traffic = watch::read_tcp_traffic(reading.processes);
  std::string what = take(reading);
  const auto now = Clock::now();
  next_look_ =
      now + std::clamp<Clock::duration>((now - start) * kShare, kInterval, kLongestInterval);
  return what;
}

std::string RankWatch::take(const watch::Reading& reading) {
  meter_.add(reading);
  if (!meter_.quiet_since()) stacks_.forget();
  if (!meter_.quiet_since() && options_.is_agent) workers_.update("/proc", reading.processes);
  write_slot(reading);
  watch::Finding finding;
  finding.kind = watch::FindingKind::unknown;
  if (read_slots(reading.time)) {
    finding = watch::find_stall(ranks_, options_.stall);
    // Ranks that wait here may wait for one on another node that works.
    const bool is_whole_step = options_.local_task_count == options_.task_count;
    if (is_whole_step) {
      ask_in_time(reading);
    } else if (finding.kind == watch::FindingKind::stalled) {
      finding.kind = watch::FindingKind::unknown;
    }
  }
  return speech(finding, reports_.update(finding, reading.time), reading);
}

void RankWatch::ask_in_time(const watch::Reading& reading) {
  const Clock::duration ahead = std::min<Clock::duration>(kTimeToAnswer, options_.stall / 2);
  const watch::Finding soon = watch::find_stall(ranks_, options_.stall - ahead);
  const bool is_time =
      soon.kind == watch::FindingKind::stalled && soon.length + ahead >= reports_.next();
  if (is_time && !has_asked_) {
    std::vector<pid_t> asked;
    for (const auto& waiting : waiting_processes(reading)) asked.push_back(waiting.process.pid);
    stacks_.ask(asked);
  }
  has_asked_ = is_time;
}

void RankWatch::write_slot(const watch::Reading& reading) {
  RankSlot& slot = own_slot();
  slot.quiet_since = milliseconds(meter_.quiet_since());
  slot.stopped_since = milliseconds(meter_.stopped_since());
  slot.stopped = meter_.stopped_process();
  slot.uninterruptible_since = milliseconds(meter_.uninterruptible_since());
  const bool is_told = meter_.quiet_since() && !options_.is_agent;
  const auto waits = is_told ? own_waits(reading) : std::vector<watch::RankWait>(1);
  slot.channel.set(waits.front().channel);
  slot.place.set(waits.front().place);
  slot.seen_at = milliseconds(reading.time);
}

bool RankWatch::read_slots(Clock::time_point now) {
  ranks_.clear();
  for (std::size_t i = 0; i < options_.local_task_count; ++i) {
    const auto report = report_in(record_.slot(i), milliseconds(now));
    if (!report) return false;
    ranks_.push_back(*report);
  }
  return true;
}

std::vector<RankWatch::WaitingRank> RankWatch::waiting_processes(
    const watch::Reading& reading) const {
  if (!options_.is_agent) {
    return {{options_.rank, watch::find_waiting_process("/proc", reading.processes)}};
  }
  std::vector<WaitingRank> waiting;
  for (const auto& [rank, processes] : workers_.workers_in(reading.processes)) {
    waiting.push_back({rank, watch::find_waiting_process("/proc", processes)});
  }
  return waiting;
}

std::vector<watch::RankWait> RankWatch::own_waits(const watch::Reading& reading) const {
  std::vector<watch::RankWait> waits;
  for (const auto& [rank, process] : waiting_processes(reading)) {
    waits.push_back({rank, process.channel, stacks_.place(process.pid)});
  }
  return waits;
}

std::string RankWatch::speech(const watch::Finding& finding,
                              const watch::StallReports::Decision& decision,
                              const watch::Reading& reading) const {
  if (decision.speech == watch::StallReports::Speech::nothing) return "";
  // All guards come to the same decision; the first one speaks.
  const auto first =
      std::ranges::find(ranks_, watch::RankState::running, &watch::RankReport::state);
  if (first - ranks_.begin() != static_cast<std::ptrdiff_t>(options_.local_rank)) return "";
  std::vector<RankFacts> facts;
  std::vector<watch::RankWait> waits;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const RankSlot& slot = record_.slot(i);
    facts.push_back({slot.rank, slot.task, slot.stopped});
    if (ranks_[i].state != watch::RankState::running) continue;
    waits.push_back({slot.rank, slot.channel.get(), slot.place.get()});
  }
  // Those of other agents on this node are not known.
  if (options_.is_agent && ranks_.size() == 1) waits = own_waits(reading);
  const std::string_view noun = options_.is_agent ? "torchrun's agent" : "rank";
  return stall_text(finding, decision, {noun, options_.node, facts, waits});
}

void RankWatch::end(int status) noexcept {
  if (has_slot_) own_slot().state = status == 0 ? RankSlot::finished : RankSlot::failed;
}

}  // namespace ddp::guard
