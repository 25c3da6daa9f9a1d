// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace ddp::elastic {
namespace {

// Processes that survive SIGKILL are stuck in the kernel, for example in a file system.
constexpr Seconds kStuckAfter = 30;
constexpr Seconds kUsageTime = 60;  // within which programs find that their command line is wrong
constexpr std::size_t kMaxNoteText = 300;

}  // namespace

Supervisor::Supervisor(Settings settings, const std::vector<std::string>& nodes, Switches switches)
    : settings_(std::move(settings)),
      switches_(std::move(switches)),
      ledger_(nodes, settings_),
      policy_(settings_) {
  require_possible(settings_, nodes.size());
}

std::vector<Action> Supervisor::handle(const Event& event, Seconds now) {
  now_ = std::max(now_, now);
  actions_.clear();
  if (phase_ != Phase::done) {
    std::visit([this](const auto& one) { on(one); }, event);
  }
  return std::exchange(actions_, {});
}

bool Supervisor::is_current(int generation) const noexcept {
  return generation == generation_ && has_processes();
}

bool Supervisor::has_processes() const noexcept {
  return phase_ == Phase::starting || phase_ == Phase::running || phase_ == Phase::ending;
}

int Supervisor::ranks() const noexcept {
  return static_cast<int>(members_.size()) * settings_.ranks_per_node;
}

// --- Events

void Supervisor::on(const Begin& /*event*/) {
  begun_ = true;
  try_start();
}

void Supervisor::on(const NodeUp& event) {
  if (!ledger_.has(event.node) || ledger_.is_excluded_forever(event.node)) return;
  if (ledger_.up(event.node, now_)) check(event.node);
  try_start();
}

void Supervisor::on(const NodeLost& event) {
  if (!ledger_.has(event.node) || !ledger_.lost(event.node)) return;
  kept_.lost(event.node);
  checks_.erase(event.node);
  const bool is_member =
      has_processes() && std::ranges::find(members_, event.node) != members_.end();
  if (is_member || phase_ == Phase::gathering) {
    act(Exclude{event.node, ledger_.exclude(event.node, now_), event.why});
  }
  if (!is_member) return decide();
  failures_.add_lost(event.node, event.why);
  if (phase_ == Phase::ending) return decide();
  const bool was_running = phase_ == Phase::running;
  begin_ending(Reason::failure);
  // Its processes cannot be asked. A generation that starts has nothing to lose, and ends itself.
  was_running ? kill() : stop(settings_.grace, false);
}

void Supervisor::on(const RankReady& event) {
  if (!is_current(event.generation) || phase_ != Phase::starting) return;
  ready_.insert(event.rank);
  if (!first_ready_at_) first_ready_at_ = now_;
  if (static_cast<int>(ready_.size()) == ranks()) phase_ = Phase::running;
}

void Supervisor::on(const RankEnded& event) {
  if (!is_current(event.generation)) return;
  if (!ended_.emplace(event.rank, event.signal == 0 ? event.code : 128 + event.signal).second)
    return;
  silent_since_.erase(event.rank);
  const bool failed = phase_ != Phase::ending || reason_ == Reason::failure;
  if (failed && event.signal == 0 && event.code == kUsageCode && may_be_usage_error()) {
    return finish_usage_error(event.rank, " (exit code 2)");
  }
  if (phase_ == Phase::ending) {
    if (failed && !blamed_) failures_.add(event);
    return;
  }
  if (event.signal == 0 && event.code == 0) return;
  if (event.signal == 0 && event.code == kContinueCode) {
    begin_ending(Reason::leaving);
    return stop(settings_.save_grace, true);  // the others, which may not know yet
  }
  failures_.add(event);
  begin_ending(Reason::failure);
}

// A program that has made steps has understood its command line; programs use this code for other
// errors, too.
bool Supervisor::may_be_usage_error() const {
  return !saving_ && !policy_.ever_made_step() && now_ - started_at_ < kUsageTime;
}

void Supervisor::finish_usage_error(int rank, const std::string& how) {
  const auto index = static_cast<std::size_t>(rank / settings_.ranks_per_node);
  finish(kUsageCode, fmt::format("rank {} on {} says that its command line is wrong{}", rank,
                                 index < members_.size() ? members_[index] : "a node", how));
}

void Supervisor::on(const Told& event) {
  if (!is_current(event.generation)) return;
  if (phase_ == Phase::ending && (reason_ != Reason::failure || blamed_)) return;
  // It may not live long enough to end with its exit code.
  if (event.is_usage_error && may_be_usage_error()) {
    return finish_usage_error(event.rank, ": " + event.text);
  }
  failures_.add(event);
  if (phase_ != Phase::ending) begin_ending(Reason::failure);
}

void Supervisor::on(const RankSilent& event) {
  if (!is_current(event.generation) || phase_ == Phase::ending) return;
  if (!ended_.contains(event.rank)) silent_since_.emplace(event.rank, now_);
}

void Supervisor::on(const RankAnswered& event) {
  if (is_current(event.generation)) silent_since_.erase(event.rank);
}

// Only steps are progress.
void Supervisor::on(const Restoring& /*event*/) {}

void Supervisor::on(const Training& event) {
  if (is_current(event.generation) && saving_) ask_to_save();
}

void Supervisor::on(const Progress& event) {
  if (!is_current(event.generation)) return;
  if (saving_) return ask_to_save();
  if (phase_ == Phase::starting) phase_ = Phase::running;
  policy_.progressed(event.step, now_);
}

void Supervisor::on(const Kept& event) {
  if (!is_current(event.generation)) return;
  kept_.add(event.state, members_, event.divided);
  if (saving_) return event.state.tier == Tier::memory ? ask_to_save() : void();
  if (phase_ != Phase::running || now_ - started_at_ < settings_.grow_every) return;
  const auto usable = ledger_.number_of_usable(now_);
  if (largest_size(settings_, usable) <= members_.size()) return;
  begin_ending(Reason::growth);
  stop(settings_.save_grace, true);
}

void Supervisor::on(const ExecutorGone& event) {
  if (!is_current(event.generation)) return;
  gone_ = true;
  if (phase_ != Phase::ending) {
    const bool all_ended = static_cast<int>(ended_.size()) == ranks();
    const bool well = std::ranges::all_of(ended_, [](const auto& one) { return one.second == 0; });
    if (all_ended && well && !saving_) return finish(0);
    failures_.add_launcher(event.text);
    begin_ending(Reason::failure);
  }
  if (reason_ == Reason::failure) blame();
  decide();
}

// While slurmctld does not answer, a node that was used until now is as good as before. Whether one
// that was lost is back must be seen.
void Supervisor::on(const Checked& event) {
  if (!checks_.contains(event.node)) return;
  const bool as_before = event.unknown && ledger_.is_usable(event.node, now_);
  judge(event.node, event.healthy || as_before, event.finding);
}

void Supervisor::on(const Signaled& event) {
  if (saving_) {
    return act(Note{fmt::format("signal {}: the state of step {} is still being saved",
                                event.signal, saving_->state.step)});
  }
  was_signaled_ = true;
  if (phase_ == Phase::gathering || (phase_ == Phase::ending && gone_)) {
    return end({kContinueCode, fmt::format("signal {}: the program does not run", event.signal)});
  }
  act(Note{fmt::format("signal {}: the program is asked to save and to end", event.signal)});
  if (phase_ == Phase::ending) {
    reason_ = Reason::leaving;
    if (!kill_at_ && !stuck_at_) stop(settings_.save_grace, true);
    return;
  }
  begin_ending(Reason::leaving);
  stop(settings_.save_grace, true);
}

void Supervisor::on(const Tick& /*event*/) {
  for (const auto& node : ledger_.take_returning(now_)) check(node);
  convict_silent();
  convict_missing();
  limit_saving();
  if (phase_ == Phase::ending) enforce_end();
  const auto overdue = checks_;
  for (const auto& [node, until] : overdue) {
    if (now_ >= until) {
      judge(node, false, fmt::format("its check did not end within {:g} s", settings_.check_time));
    }
  }
  if (phase_ == Phase::gathering) try_start();
}

// --- Ending a generation

void Supervisor::begin_ending(Reason reason) {
  phase_ = Phase::ending;
  reason_ = reason;
  ending_since_ = now_;
  silent_since_.clear();
}

void Supervisor::stop(Seconds grace, bool save) {
  kill_at_ = now_ + grace;
  act(Stop{generation_, grace, save});
}

void Supervisor::kill() {
  kill_at_.reset();
  stuck_at_ = now_ + kStuckAfter;
  act(Kill{generation_});
}

// Ranks of a node die one after the other, so the first failure does not say yet whose it is.
void Supervisor::end_collection() {
  if (!kill_at_ && !stuck_at_) stop(settings_.grace, false);
  blame();
}

void Supervisor::blame() {
  if (std::exchange(blamed_, true)) return;
  why_ = failures_.text();
  blame_ = {generation_, why_, {}};
  for (const auto& one : failures_.blamed()) {
    blame_->nodes.push_back(one.node);
    if (saving_ || ledger_.is_excluded_forever(one.node)) continue;
    if (ledger_.strike(one.node, now_) >= settings_.strikes) {
      ledger_.exclude_forever(one.node);
      act(Exclude{one.node, kForever,
                  fmt::format("{} failures before this one: {}", settings_.strikes, one.why)});
    } else if (ledger_.is_usable(one.node, now_)) {
      check(one.node);
    }
  }
}

void Supervisor::enforce_end() {
  if (!gone_ && reason_ == Reason::failure && !blamed_ &&
      now_ - ending_since_ >= settings_.collect) {
    end_collection();
  }
  // A program that ends by itself, with 75, has as long as one that is asked to.
  if (!gone_ && reason_ != Reason::failure && !kill_at_ && !stuck_at_) {
    kill_at_ = ending_since_ + settings_.save_grace;
  }
  if (!gone_ && kill_at_ && now_ >= *kill_at_) kill();
  if (gone_ || !stuck_at_ || now_ < *stuck_at_) return;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const int first = static_cast<int>(i) * settings_.ranks_per_node;
    bool all = true;
    for (int r = first; r < first + settings_.ranks_per_node; ++r) all = all && ended_.contains(r);
    if (all || ledger_.is_excluded_forever(members_[i])) continue;
    ledger_.exclude_forever(members_[i]);
    act(Exclude{members_[i], kForever,
                fmt::format("its processes did not end {:g} s after SIGKILL", kStuckAfter)});
  }
  gone_ = true;
  if (reason_ == Reason::failure) blame();
  decide();
}

void Supervisor::convict_silent() {
  if (phase_ != Phase::starting && phase_ != Phase::running) return;
  bool any = false;
  for (const auto& [rank, since] : silent_since_) {
    if (now_ - since < settings_.silence) continue;
    failures_.add_silent(rank, settings_.silence);
    any = true;
  }
  if (!any) return;
  begin_ending(Reason::failure);
  end_collection();
}

// A rank whose agent does not come keeps the others waiting.
void Supervisor::convict_missing() {
  if (phase_ != Phase::starting) return;
  const bool none = !first_ready_at_;
  const auto since = none ? started_at_ : *first_ready_at_;
  const auto limit = none ? settings_.first_start_time : settings_.start_time;
  if (now_ - since < limit) return;
  for (int rank = 0; rank < ranks() && !none; ++rank) {
    if (!ready_.contains(rank) && !ended_.contains(rank)) failures_.add_missing(rank, limit);
  }
  if (none) failures_.add_launcher(fmt::format("no rank has started within {:g} s", limit));
  begin_ending(Reason::failure);
  end_collection();
}

void Supervisor::decide() {
  if (phase_ != Phase::ending) return try_start();
  const bool suspected =
      std::ranges::any_of(members_, [this](const auto& node) { return checks_.contains(node); });
  if (!gone_) return;
  if (saving_) return conclude(saving_->then);
  if (reason_ == Reason::leaving) return decide_after_leaving();
  if (suspected) return;
  phase_ = Phase::gathering;
  gathering_since_ = now_;
  if (reason_ == Reason::failure) return decide_after_failure();
  try_start();
}

// --- Starting a generation

// No node is chosen any more after the last start.
void Supervisor::check(const std::string& node) {
  if (saving_) return;
  if (!settings_.check_nodes) return ledger_.passed(node);
  if (!checks_.try_emplace(node, now_ + settings_.check_time).second) return;
  act(Check{node});
}

void Supervisor::judge(const std::string& node, bool healthy, const std::string& finding) {
  checks_.erase(node);
  if (healthy) {
    ledger_.passed(node);
    trusted_.insert(node);
  } else {
    act(Exclude{node, ledger_.exclude(node, now_), finding});
  }
  decide();
}

void Supervisor::try_start() {
  if (phase_ != Phase::gathering || !begun_) return;
  if (!gathering_since_) gathering_since_ = now_;
  if (now_ < not_before_) return;
  if (largest_size(settings_, ledger_.number_of_usable(now_)) == 0) return give_up_waiting();
  auto nodes = place(members_, ledger_.usable(now_), settings_, switches_);
  if (are_trusted(nodes)) start(std::move(nodes));
}

// A spare may have become bad while it was idle. At the very start, no node is known to be better.
bool Supervisor::are_trusted(const std::vector<std::string>& nodes) {
  if (generation_ == 0 || !settings_.check_nodes) return true;
  bool all = true;
  for (const auto& node : nodes) {
    if (trusted_.contains(node)) continue;
    check(node);
    all = false;
  }
  return all;
}

void Supervisor::start(std::vector<std::string> nodes) {
  const auto restore = kept_.best_for(nodes);
  if (generation_ > 0) {
    act(Note{fmt::format("generation {} on {} of {} nodes{}: {}", generation_ + 1, nodes.size(),
                         ledger_.size(),
                         restore.tier == Tier::none
                             ? ""
                             : fmt::format(", newest known state: step {} in {}", restore.step,
                                           restore.tier == Tier::disk ? "a checkpoint" : "memory"),
                         reason_ == Reason::growth ? "more nodes can be used"
                                                   : sanitize_lines(why_, kMaxNoteText))});
  }
  begin_generation(std::move(nodes), restore);
}

void Supervisor::begin_generation(std::vector<std::string> nodes, const State& restore) {
  ++generation_;
  members_ = std::move(nodes);
  trusted_.insert(members_.begin(), members_.end());
  first_ready_at_.reset();
  phase_ = Phase::starting;
  started_at_ = now_;
  gathering_since_.reset();
  waiting_told_ = false;
  ready_.clear();
  ended_.clear();
  silent_since_.clear();
  failures_ = FailureReport(members_, settings_.ranks_per_node);
  blamed_ = false;
  kill_at_.reset();
  stuck_at_.reset();
  gone_ = false;
  policy_.started(restore.step, now_);
  act(Start{generation_, members_, restore, saving_.has_value()});
}

}  // namespace ddp::elastic
