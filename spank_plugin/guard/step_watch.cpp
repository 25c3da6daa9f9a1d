// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/step_watch.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <vector>

#include "spank_plugin/guard/intervals.h"
#include "spank_plugin/guard/stall_text.h"

namespace ddp::guard {

using watch::FindingKind;

bool StepWatch::can_reach_node() const noexcept {
  return options_.local_task_count == 1 || record_.is_shared();
}

bool StepWatch::can_reach_all() const {
  if (!can_reach_node()) return false;
  if (options_.task_count <= options_.local_task_count) return true;
  const bool is_hub_known = record_.slot(0).rank == 0 || !options_.hub.addresses.empty();
  return make_link_ && is_hub_known && !options_.hub.ports.empty() && !record_.key().empty();
}

void StepWatch::speak_for_node(std::uint32_t node) noexcept {
  if (link_ || !make_link_ || options_.task_count <= options_.local_task_count) return;
  // The hub's node may know its own name as a loopback address only.
  if (options_.hub.ports.empty() || (options_.hub.addresses.empty() && node != 0)) return;
  try {
    link_ = make_link_({options_.hub, record_.key(), node, options_.node,
                        options_.task_count - options_.local_task_count});
  } catch (const std::exception&) {  // no thread or file left: this node is watched by itself
  }
}

void StepWatch::finish(const watch::RanksReport& own, bool is_over) noexcept {
  try {
    if (!link_) return;
    exchange_step_end();  // again: it may be a new link
    if (link_->is_hub()) static_cast<void>(add_others(own, Clock::now()));  // remembers their ends
    using LastWords = NodeLink::LastWords;
    const bool is_urgent = !record_.is_any_step_end_told();
    link_->finish(own, !is_over    ? LastWords::of_one
                       : is_urgent ? LastWords::of_last_urgent
                                   : LastWords::of_last);
  } catch (const std::exception&) {  // no memory: the hub then never knows how they ended
  }
}

void StepWatch::exchange_step_end() noexcept {
  if (!link_) return;
  try {
    if (const auto heard = link_->step_end()) record_.end_step(*heard);
    const auto end = record_.step_end();
    if (!end || record_.is_step_end_told()) return;
    link_->end_step(*end);
    // A link that is connected sends it, also while this guard leaves.
    const bool is_sent = !link_->is_hub() && link_->is_connected();
    if (is_sent || link_->is_step_end_told()) record_.set_step_end_told(*end);
  } catch (const std::exception&) {  // no memory: again at the next call
  }
}

// Remembers the ranks that have ended, and adds those that an earlier guard has remembered.
void StepWatch::add_ended(watch::RanksReport& ranks) const {
  std::vector<bool> is_known(std::min(options_.task_count, NodeRecord::kMaxOthers));
  for (std::size_t i = 0; i < ranks.ranks.size(); ++i) {
    const std::uint32_t rank = ranks.facts[i].rank;
    if (rank < is_known.size()) is_known[rank] = true;
    const auto state = ranks.ranks[i].state;
    if (state == watch::RankState::finished) record_.remember_end(rank, RankSlot::finished);
    if (state == watch::RankState::failed) record_.remember_end(rank, RankSlot::failed);
  }
  for (std::uint32_t rank = 0; rank < is_known.size(); ++rank) {
    const auto state = record_.end_of(rank);
    if (is_known[rank] || state == RankSlot::absent) continue;
    const bool is_failed = state == RankSlot::failed;
    ranks.ranks.push_back({is_failed ? watch::RankState::failed : watch::RankState::finished});
    ranks.facts.push_back({.rank = rank});
  }
}

StepWatch::Known StepWatch::add_others(const watch::RanksReport& own, Clock::time_point now) const {
  Known known{own, options_.local_task_count == options_.task_count};
  if (!link_ || !link_->is_hub()) return known;
  known.ranks.append(link_->others(now));
  add_ended(known.ranks);
  const bool is_distinct = known.ranks.sort();
  known.is_whole_step = is_distinct && known.ranks.ranks.size() == options_.task_count;
  return known;
}

// The question where a rank stands disturbs it, so it is asked only this long before a report.
bool StepWatch::is_due_soon(const watch::RanksReport& step) const {
  const Clock::duration to_answer = link_ ? 3 * kTimeToAnswer : kTimeToAnswer;
  const Clock::duration ahead = std::min<Clock::duration>(to_answer, options_.stall / 2);
  const watch::Finding soon = watch::find_stall(step.ranks, options_.stall - ahead);
  return soon.kind == FindingKind::stalled && soon.length + ahead >= reports_.next();
}

StepWatch::Outcome StepWatch::update(const watch::RanksReport& own, Clock::time_point now) {
  Outcome outcome;
  if (link_ && !link_->is_hub()) {
    link_->publish(own);
    outcome.wants_places = link_->was_asked();
    if (link_->is_connected()) return outcome;
  }
  const auto [known, is_whole_step] = add_others(own, now);
  outcome.wants_places = outcome.wants_places || (is_whole_step && is_due_soon(known));
  if (outcome.wants_places && link_ && link_->is_hub()) link_->ask();
  watch::Finding finding = watch::find_stall(known.ranks, options_.stall);
  // Those that are known may wait for one that works.
  if (!is_whole_step && finding.kind == FindingKind::stalled) finding.kind = FindingKind::unknown;
  const auto decision = reports_.update(finding, now);
  const std::string_view noun = options_.is_agent ? "torchrun's agent" : "rank";
  outcome.ends_step = options_.ends_on_stall && is_whole_step &&
                      decision.speech == watch::StallReports::Speech::finding;
  outcome.speech = stall_text(finding, decision, noun, known, outcome.ends_step);
  return outcome;
}

}  // namespace ddp::guard
