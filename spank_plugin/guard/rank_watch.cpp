// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/rank_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "spank_plugin/guard/intervals.h"
#include "spank_plugin/guard/stall_text.h"
#include "spank_plugin/watch/wait_channel.h"

namespace ddp::guard {
namespace {

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
constexpr int kSearches = 60;
// Of a task that is told to end. It may wait for an answer, for example to what it has sent.
constexpr auto kCertainStandstill = std::chrono::seconds(5);
// A reading of a meter, and a bit.
constexpr auto kCloseInterval = std::chrono::milliseconds(520);

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

bool is_asleep(const RankSlot& slot, std::int64_t now) noexcept {
  return now - slot.seen_at > std::chrono::milliseconds(kAsleep).count();
}

// What a guard wrote of its rank; nullopt if it is not known what that does.
std::optional<watch::RankReport> report_in(const RankSlot& slot, std::int64_t now) {
  using watch::RankState;
  watch::RankReport report;
  switch (slot.state) {
    case RankSlot::finished:
      report.state = RankState::finished;
      report.quiet = length(slot.quiet_since, now);
      return report;
    case RankSlot::failed:
      report.state = RankState::failed;
      report.quiet = length(slot.quiet_since, now);
      return report;
    case RankSlot::running:
      break;
    default:
      return std::nullopt;
  }
  if (is_asleep(slot, now)) {
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

RankWatch::RankWatch(pid_t task, const GuardOptions& options, NodeRecord& record,
                     MakeLink make_link)
    : task_(task),
      options_(options),
      record_(record),
      meter_(std::min<Clock::duration>(options.stall / kTrafficShare, kTrafficInterval)),
      has_slot_(options.local_rank < options.local_task_count &&
                options.local_task_count <= NodeRecord::kMaxRanks),
      step_(options, record, std::move(make_link)) {
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

watch::Reading RankWatch::read() {
  watch::Reading reading{Clock::now(), watch::read_processes("/proc", getpid(), task_), {}};
  stacks_.subtract_answers(reading.processes);
  // Its agent is not a worker: it asks for their state, and sends heartbeats.
  if (options_.is_agent && !looks_closely_ && !reading.processes.empty()) {
    reading.processes.erase(reading.processes.begin());
  }
  if (meter_.needs_traffic(reading)) reading.traffic = watch::read_tcp_traffic(reading.processes);
  return reading;
}

std::string RankWatch::look() {
  const auto start = Clock::now();
  if (searches_left_ > 0) find_record();
  stacks_.read();
  std::string what = take(read());
  const auto now = Clock::now();
  const Clock::duration least = looks_closely_ ? kCloseInterval : kInterval;
  next_look_ = now + std::clamp<Clock::duration>((now - start) * kShare, least, kLongestInterval);
  return what;
}

void RankWatch::measure(const watch::Reading& reading) {
  meter_.add(reading);
  looked_at_ = reading.time;
  is_runnable_ =
      std::ranges::find(reading.processes, 'R', &watch::Process::state) != reading.processes.end();
}

std::string RankWatch::take(const watch::Reading& reading) {
  measure(reading);
  if (!meter_.quiet_since()) {
    stacks_.forget();
    has_asked_ = false;
    record_.want_places_until(0);
    if (options_.is_agent) workers_.update("/proc", reading.processes);
  }
  write_slot(reading);
  std::string what = speaks_ ? name_killed_guard(reading.time) : "";
  if (const auto ranks = read_slots(reading)) {
    speaks_ = is_first(*ranks);
    if (speaks_) {
      step_.speak_for_node(ranks->facts.front().rank);
    } else {
      step_.stop_speaking();
    }
    auto outcome = step_.update(*ranks, reading.time);
    if (outcome.wants_places) {
      record_.want_places_until(milliseconds(reading.time + kTimeToAnswer));
    }
    // All guards of a node come to the same decision; the first one speaks.
    if (speaks_ && what.empty()) what = std::move(outcome.speech);
    if (speaks_ && outcome.ends_step) end_step({reading.time});
  }
  ask_if_wanted(reading);
  return what;
}

std::string RankWatch::name_killed_guard(Clock::time_point now) {
  for (std::size_t i = 0; i < options_.local_task_count; ++i) {
    RankSlot& slot = record_.slot(i);
    const bool may_be = slot.state == RankSlot::running && is_asleep(slot, milliseconds(now));
    if (!may_be || !is_gone(slot.guard)) continue;
    slot.state = RankSlot::failed;
    const bool is_end = options_.ends_on_failure && ending_ranks() > 1;
    if (is_end) end_step({now, 128 + SIGKILL});
    if (!record_.is_first_failure()) continue;
    GuardOptions its = options_;
    its.rank = slot.rank;
    return its.subject() + " was killed, with its guard" + (is_end ? what_ends() : "");
  }
  return "";
}

std::uint32_t RankWatch::ending_ranks() const {
  if (step_.can_reach_all()) return options_.task_count;
  return step_.can_reach_node() ? options_.local_task_count : 1;
}

std::string RankWatch::what_ends() const {
  return std::string(step_.can_reach_all() ? kEndsStep : kEndsNode);
}

void RankWatch::ask_if_wanted(const watch::Reading& reading) {
  const bool is_wanted = milliseconds(reading.time) < record_.places_wanted_until();
  if (is_wanted && !has_asked_ && meter_.quiet_since()) {
    std::vector<pid_t> asked;
    for (const auto& waiting : waiting_processes(reading)) asked.push_back(waiting.process.pid);
    stacks_.ask(asked);
    has_asked_ = true;
  }
  if (!is_wanted) has_asked_ = false;
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

std::optional<watch::RanksReport> RankWatch::read_slots(const watch::Reading& reading) const {
  watch::RanksReport ranks;
  int running = 0;
  for (std::size_t i = 0; i < options_.local_task_count; ++i) {
    const RankSlot& slot = record_.slot(i);
    const auto report = report_in(slot, milliseconds(reading.time));
    if (!report) return std::nullopt;
    ranks.ranks.push_back(*report);
    ranks.facts.push_back({slot.rank, slot.task, slot.stopped, options_.node});
    running += report->state == watch::RankState::running ? 1 : 0;
    if (report->state != watch::RankState::running || !report->quiet) continue;
    ranks.waits.push_back({slot.rank, slot.channel.get(), slot.place.get()});
  }
  for (auto& report : ranks.ranks) report.is_alone = running == 1;
  // Those of other agents on this node are not known.
  if (options_.is_agent && ranks.ranks.size() == 1 && !ranks.waits.empty()) {
    ranks.waits = own_waits(reading);
  }
  return ranks;
}

bool RankWatch::is_first(const watch::RanksReport& ranks) const {
  const auto first =
      std::ranges::find(ranks.ranks, watch::RankState::running, &watch::RankReport::state);
  return first - ranks.ranks.begin() == static_cast<std::ptrdiff_t>(options_.local_rank);
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

std::optional<StepEnd> RankWatch::step_end() noexcept {
  step_.exchange_step_end();
  return record_.step_end();
}

void RankWatch::look_closely() {
  looks_closely_ = true;
  meter_ = watch::ProgressMeter();
  next_look_ = Clock::now();
}

bool RankWatch::rest_stands_still() {
  if (Clock::now() < next_look_) return false;
  measure(read());
  next_look_ = Clock::now() + kCloseInterval;
  return stands_still();
}

// One that is stopped may continue, and one that waits for a processor or a device works.
bool RankWatch::stands_still() const noexcept {
  const auto quiet = meter_.quiet_since();
  if (!looks_closely_ || !quiet || is_runnable_ || meter_.stopped_since()) return false;
  return !meter_.uninterruptible_since() && looked_at_ - *quiet >= kCertainStandstill;
}

void RankWatch::end(int status) noexcept {
  if (!has_slot_) return;
  own_slot().quiet_since = milliseconds(Clock::now());
  own_slot().state = status == 0 ? RankSlot::finished : RankSlot::failed;
}

// Whether no guard of this node has something to say, after `left` of them have left. One that has
// ended without leaving was killed.
bool RankWatch::is_last(std::uint32_t left) noexcept {
  for (std::size_t i = 0; i < options_.local_task_count; ++i) {
    RankSlot& slot = record_.slot(i);
    if (!slot.has_left && slot.state != RankSlot::absent && is_gone(slot.guard)) ++left;
  }
  return left >= options_.local_task_count;
}

void RankWatch::leave() noexcept {
  if (!has_slot_) return;
  step_.exchange_step_end();  // before the last guard sees that this one has left
  own_slot().has_left = 1;
  const bool is_over = is_last(record_.leave());
  try {
    const auto ranks = read_slots({Clock::now(), {}, {}});
    if (!ranks) return step_.finish({}, false);  // another guard of this node is asleep
    const std::uint32_t first = ranks->facts.front().rank;
    if (is_over && (first != 0 || !record_.is_any_step_end_told())) step_.speak_for_node(first);
    step_.finish(*ranks, is_over);
  } catch (const std::exception&) {  // no memory
    step_.stop_speaking();
  }
}

}  // namespace ddp::guard
