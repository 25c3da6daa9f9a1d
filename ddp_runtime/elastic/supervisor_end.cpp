// SPDX-License-Identifier: Apache-2.0
// The end of a run: when it has come, and what is saved before. See Note [The last start].
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "ddp_runtime/elastic/supervisor.h"

namespace ddp::elastic {
namespace {

constexpr std::size_t kMaxEndText = 300;

}  // namespace

// --- When it has come

void Supervisor::decide_after_failure() {
  RestartPolicy::Failure failure{
      failures_.signature(), {}, failures_.has_lost_node(), first_ready_at_.has_value()};
  for (const auto& one : failures_.blamed()) failure.nodes.push_back(one.node);
  if (const auto reason = policy_.failed(failure)) {
    return end({1, fmt::format("{} ({})", *reason, sanitize_lines(why_, kMaxEndText))});
  }
  not_before_ = now_ + policy_.pause();
  try_start();
}

// To be continued, if there is something to continue from. A program that tells nothing may have
// saved, and may end with any code after a signal.
void Supervisor::decide_after_leaving() {
  const bool ended_well =
      std::ranges::any_of(ended_, [](const auto& one) { return one.second == kContinueCode; });
  const bool finished =
      static_cast<int>(ended_.size()) == ranks() &&
      std::ranges::all_of(ended_, [](const auto& one) { return one.second == 0; });
  const bool tells = policy_.ever_made_step() || kept_.any();
  if (finished && (tells || !was_signaled_)) return finish(0);
  if (ended_well) return finish(kContinueCode);
  const bool may_have_saved = was_signaled_ && !tells;
  end({.code = kContinueCode, .text = {}, .needs_checkpoint = !may_have_saved});
}

void Supervisor::give_up_waiting() {
  if (now_ - *gathering_since_ < settings_.wait_for_nodes) {
    if (std::exchange(waiting_told_, true)) return;
    return act(Note{fmt::format(
        "{} of at least {} nodes can be used; waiting up to {:g} s for more",
        ledger_.number_of_usable(now_), settings_.min_nodes, settings_.wait_for_nodes)});
  }
  if (settings_.can_requeue) return end({.code = kContinueCode, .text = {}, .requeue = true});
  end({kContinueCode, "too few nodes can be used; submit the job again to continue"});
}

// --- What is saved before

// Memory does not outlive the job.
void Supervisor::end(Ending ending) {
  const auto newest = kept_.newest();
  if (newest.tier != Tier::memory) return conclude(ending);
  if (kept_.best_for(ledger_.usable(now_)) == newest) {
    return begin_saving(newest, std::move(ending));
  }
  note_lost(newest, "the nodes that can be used do not have all of it");
  conclude(ending);
}

void Supervisor::begin_saving(const State& state, Ending ending) {
  saving_ =
      Saving{state, now_ + settings_.first_start_time + settings_.save_grace, std::move(ending)};
  auto nodes = savers();
  checks_.clear();  // nothing depends on them any more
  act(Note{fmt::format(
      "the program is started once more, on {}, to save the state of step {}, "
      "which only memory has",
      nodes.size() == 1 ? nodes.front() : fmt::format("{} nodes", nodes.size()), state.step)});
  begin_generation(std::move(nodes), state);
}

// All nodes that have a part, as many as have trained together. Otherwise one that has the state,
// which is enough also for the program: blocks that are divided equally among more nodes are blocks
// that one node can have. A node that is being checked is the last choice.
std::vector<std::string> Supervisor::savers() const {
  auto holders = kept_.holders_among(ledger_.usable(now_));
  if (kept_.divided()) return holders;
  const auto trusted =
      std::ranges::find_if(holders, [this](const auto& node) { return !checks_.contains(node); });
  return {trusted == holders.end() ? holders.front() : *trusted};
}

// It trains, so it does not know that it was started only to save. This it understands.
void Supervisor::ask_to_save() {
  if (phase_ == Phase::ending) return;
  begin_ending(Reason::leaving);
  stop(settings_.save_grace, true);
}

void Supervisor::limit_saving() {
  if (!saving_ || gone_ || stuck_at_ || now_ < saving_->until) return;
  if (phase_ != Phase::ending) {
    failures_.add_launcher("it has not ended in time");
    begin_ending(Reason::failure);
  }
  kill();
}

void Supervisor::conclude(const Ending& ending) {
  if (saving_) note_saved();
  if (ending.requeue) {
    act(Requeue{});
    phase_ = Phase::done;
    return;
  }
  if (ending.needs_checkpoint && kept_.on_disk().tier == Tier::none) {
    return finish(1, "the program had to end before it had saved anything");
  }
  finish(ending.code, ending.text);
}

void Supervisor::note_saved() {
  const auto& disk = kept_.on_disk();
  if (disk.tier == Tier::disk && disk.step >= saving_->state.step) {
    return act(Note{fmt::format("the state of step {} is saved", disk.step)});
  }
  note_lost(saving_->state, reason_ == Reason::failure ? why_ : "the program has not saved it");
}

void Supervisor::note_lost(const State& state, const std::string& why) {
  const auto& disk = kept_.on_disk();
  act(Note{fmt::format("the state of step {} is lost with the memory of the nodes: {}; {}",
                       state.step, sanitize_lines(why, kMaxEndText),
                       disk.tier == Tier::none
                           ? "there is no checkpoint"
                           : fmt::format("the newest checkpoint is of step {}", disk.step))});
}

void Supervisor::finish(int code, const std::string& text) {
  if (!text.empty()) act(Note{text});
  act(Finish{code});
  phase_ = Phase::done;
}

}  // namespace ddp::elastic
