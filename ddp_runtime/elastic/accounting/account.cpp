// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/accounting/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ddp::elastic {
namespace {

constexpr Micros kSecond = 1'000'000;
constexpr Micros kMaxRunTime = 4'000'000'000 * kSecond;
constexpr Micros kMaxQueueTime = 100'000'000 * kSecond;
// What is told of a step is this late at most: the program and its agent tell ten and five times a
// second.
constexpr Micros kMaxTellingTime = 300'000;
constexpr int kContinues = 75;
constexpr const char* kNoWord = "the job ended without a word of ddp-run";

std::string how_it_ended(const Entry& ended) {
  return ended.signal != 0 ? fmt::format("signal {}", ended.signal)
                           : fmt::format("exit code {}", ended.code);
}

Micros micros_between(double from, double to) {
  return static_cast<Micros>(
      std::clamp((to - from) * 1e6, 0.0, static_cast<double>(kMaxQueueTime)));
}

std::string restored_state(const std::string& restore, std::int64_t step) {
  if (step == 0) return "none";
  return fmt::format("{}@{}", restore.starts_with("memory") ? "memory" : "disk", step);
}

}  // namespace

void Account::add(const Entry& entry) {
  if (entry.kind == EntryKind::begin) return begin(entry);
  const auto now = time_of(entry);
  last_ = std::max(last_, now);
  if (entry.unix_seconds > 0) last_unix_ = entry.unix_seconds;
  const bool is_current = has_processes() && entry.generation == generation_;
  switch (entry.kind) {
    case EntryKind::start:
      return start(entry, now);
    case EntryKind::signaled:
      if (has_processes()) leave(fmt::format("signal {} to ddp-run", entry.signal), now);
      return;
    case EntryKind::exclude:
      if (excluded_.size() < kMaxExcluded || excluded_.contains(entry.node)) {
        excluded_[entry.node] = entry.text;
      }
      return;
    case EntryKind::requeue:
      return finish(kContinues, now);
    case EntryKind::finish:
      return finish(entry.code, now);
    case EntryKind::failed:
      return failed(entry, now);
    default:
      break;
  }
  if (!is_current) return;
  switch (entry.kind) {
    case EntryKind::rank_ready:
      return rank_ready(entry, now);
    case EntryKind::rank_ended:
      return rank_ended(entry, now);
    case EntryKind::told:
      return fail(entry.text, now);
    case EntryKind::restoring:
      tells_kept_ = true;
      return restoring(now);
    case EntryKind::training:
      return training(entry.step, now);
    case EntryKind::progress:
      return progress(entry, now);
    case EntryKind::kept:
      return kept(entry.step);
    case EntryKind::kept_in_memory:
      tells_kept_ = true;
      return;
    case EntryKind::stop:
      return entry.save ? leave("to continue on more nodes", now) : fail("it was stopped", now);
    case EntryKind::kill:
      return fail("it was killed", now);
    case EntryKind::executor_gone:
      return executor_gone(entry, now);
    default:
      return;
  }
}

// The time of an entry never precedes what is already accounted for. Without seconds since `begin`,
// as in older files, the clock of the system has to do.
Micros Account::time_of(const Entry& entry) const {
  const auto since = entry.since_begin.value_or(micros_between(last_unix_, entry.unix_seconds) +
                                                last_ - job_begun_);
  return std::clamp(job_begun_ + since, until_, std::max(until_, kMaxRunTime));
}

void Account::begin(const Entry& entry) {
  if (jobs_ == 0) {
    unix_begin_ = entry.unix_seconds;
  } else {
    end_without_a_word(last_);
    // The clock may have been set back.
    const auto queue = micros_between(last_unix_, entry.unix_seconds);
    assign(Use::queue, std::min(until_ + queue, std::max(until_, kMaxRunTime)));
  }
  ++jobs_;
  last_ = job_begun_ = until_;
  last_unix_ = entry.unix_seconds;
  job_ = entry.job;
  full_nodes_ = entry.nodes;
  allocated_nodes_ = std::max(entry.allocated_nodes, entry.nodes);
  ranks_per_node_ = entry.ranks_per_node;
  generation_ = 0;
  code_.reset();
}

void Account::start(const Entry& entry, Micros now) {
  end_without_a_word(now);
  GenerationAccount account;
  account.number = next_number_++;
  account.job = job_;
  account.generation = entry.generation;
  account.nodes = entry.nodes;
  account.ranks = entry.nodes * ranks_per_node_;
  account.restored_from = entry.restore;
  account.begun = now;
  account.uses = std::exchange(between_, {});
  generations_.push_back(std::move(account));
  if (generations_.size() > kMaxGenerations) {
    older_ += generations_.front().uses;
    generations_.pop_front();
  }
  phase_ = Phase::launching;
  generation_ = entry.generation;
  leaving_ = false;
  ready_ = ended_well_ = 0;
  told_steps_time_ = told_stall_time_ = time_of_its_steps_ = 0;
  told_saves_ = number_of_its_steps_ = 0;
}

void Account::rank_ready(const Entry& /*entry*/, Micros now) {
  if (phase_ != Phase::launching || ++ready_ < current().ranks) return;
  assign(Use::launch, now);
  phase_ = Phase::started;
}

void Account::rank_ended(const Entry& entry, Micros now) {
  if (entry.signal == 0 && entry.code == 0) {
    ++ended_well_;
    return;
  }
  if (entry.signal == 0 && entry.code == kContinues) return leave("exit code 75 of a rank", now);
  fail(how_it_ended(entry), now);
}

void Account::restoring(Micros now) {
  if (phase_ != Phase::launching && phase_ != Phase::started) return;
  assign(Use::launch, now);
  phase_ = Phase::loading;
}

// Of a program that runs and never says what it does, nothing is known.
Use Account::use_before_training() const {
  if (phase_ == Phase::loading) return Use::load;
  return phase_ == Phase::started && !told_steps() ? Use::other : Use::launch;
}

void Account::training(std::int64_t step, Micros now) {
  if (phase_ == Phase::training || phase_ == Phase::ending) return;
  assign(phase_ == Phase::loading ? Use::load : Use::launch, now);
  phase_ = Phase::training;
  auto& generation = current();
  generation.from_step = generation.to_step = step;
  generation.restored_from = restored_state(generation.restored_from, step);
  generation.steps_repeated = lowest_ ? std::max<std::int64_t>(highest_ - step, 0) : 0;
  steps_repeated_ += generation.steps_repeated;
  repeat_after(step);
  lowest_ = std::min(lowest_.value_or(step), step);
  highest_ = step;
  // What it has resumed from was kept, and nothing later.
  if (step > 0 || kept_) kept_ = step;
  if (!failed_at_) return;
  if (failed_number_ && *failed_number_ >= generations_.front().number) {
    const auto index = static_cast<std::size_t>(*failed_number_ - generations_.front().number);
    generations_[index].recovered_after = until_ - *failed_at_;
  }
  failed_at_.reset();
}

// A program that tells only its steps: if it tells their time, that says when the first one began;
// otherwise it is one step.
void Account::begin_unannounced(const Entry& entry, Micros now) {
  const auto of_steps =
      entry.steps_time ? std::min(*entry.steps_time + entry.stall_time, now - until_) : 0;
  const auto kept = kept_;  // that it resumes from there is a guess
  training(std::max<std::int64_t>(entry.step - 1, 0), now - of_steps);
  kept_ = kept;
}

void Account::progress(const Entry& entry, Micros now) {
  if (phase_ == Phase::ending) return progress_told_late(entry.step);
  if (phase_ != Phase::training) begin_unannounced(entry, now);
  auto& generation = current();
  const auto steps = entry.step - generation.to_step;
  const auto span = now - until_;
  if (steps < 0 || (steps == 0 && !entry.steps_time)) return;
  if (!entry.steps_time) {
    assign_steps(span, entry.step);
  } else {
    // Sums, so that what a lost line would have told is in the next one.
    const auto productive = std::clamp<Micros>(*entry.steps_time - told_steps_time_, 0, span);
    const auto stall =
        std::clamp<Micros>(entry.stall_time - told_stall_time_, 0, span - productive);
    told_steps_time_ += productive;
    told_stall_time_ += stall;
    assign_steps(productive, entry.step);
    assign(Use::checkpoint_stall, until_ + stall);
    assign(Use::other, now);
  }
  if (entry.saves > told_saves_) saves_ += entry.saves - std::exchange(told_saves_, entry.saves);
}

// The steps were made before the failure, but their time is already that of the lost step.
void Account::progress_told_late(std::int64_t step) {
  auto& generation = current();
  if (!generation.from_step || step <= generation.to_step) return;
  generation.to_step = step;
  highest_ = std::max(highest_, step);
}

// As if all nodes took part: the rest of the time is lost to those that do not.
void Account::assign_steps(Micros productive, std::int64_t to_step) {
  auto& generation = current();
  const auto missing = std::max(full_nodes_ - generation.nodes, 0);
  const auto degraded =
      missing == 0 ? 0
                   : static_cast<Micros>(static_cast<double>(productive) * missing / full_nodes_);
  assign(Use::productive, until_ + productive - degraded);
  assign(Use::degraded, until_ + degraded);
  const auto steps = to_step - generation.to_step;
  if (steps > 0 || productive > 0) {
    pieces_.add({generation.to_step, to_step, productive - degraded, degraded, generation.number});
  }
  time_of_steps_ += productive;
  number_of_steps_ += steps;
  time_of_its_steps_ += productive;
  number_of_its_steps_ += steps;
  generation.to_step = to_step;
  highest_ = std::max(highest_, to_step);
}

// A program that fails has not told its last steps, but their state shows that it made them.
void Account::kept(std::int64_t step) {
  kept_ = std::max(kept_.value_or(0), step);
  highest_ = std::max(highest_, step);
}

// It is to end, but nothing has failed. Until its end it may make steps, and save.
void Account::leave(const std::string& why, Micros now) {
  if (phase_ == Phase::ending || std::exchange(leaving_, true)) return;
  current().why_ended = why;
  if (phase_ == Phase::training) return;
  assign(use_before_training(), now);
  phase_ = Phase::ending;
}

void Account::fail(const std::string& why, Micros now) {
  if (phase_ == Phase::ending || leaving_) return;
  auto& generation = current();
  if (phase_ == Phase::training) {
    const auto begun = until_;
    assign_lost_step(now);
    generation.detected_after = now - begun;
  } else {
    assign(use_before_training(), now);
  }
  phase_ = Phase::ending;
  generation.failed = true;
  generation.why_ended = why;
  ++faults_;
  if (failed_at_) return;  // the program has not recovered from an earlier one
  failed_at_ = now;
  failed_number_ = generation.number;
}

// Its last process may have ended before.
void Account::failed(const Entry& entry, Micros now) {
  if (generations_.empty() || entry.generation != generation_) return;
  if (has_processes()) fail(entry.text, now);
  if (!current().failed) return;
  current().why_ended = entry.text;
  current().blamed = entry.blamed;
}

void Account::assign_lost_step(Micros now) {
  assign(Use::repeat, std::min(now, until_ + mean_step() + kMaxTellingTime));
  assign(Use::detect, now);
}

void Account::executor_gone(const Entry& entry, Micros now) {
  const bool well = ended_well_ > 0 && ended_well_ >= current().ranks;
  if (!well && !leaving_) fail(entry.text.empty() ? "it ended without a word" : entry.text, now);
  // A program that tells nothing has spent its time with something.
  assign(phase_ == Phase::ending || leaving_ ? Use::stop : Use::other, now);
  phase_ = Phase::gathering;
}

void Account::finish(int code, Micros now) {
  if (has_processes()) {
    assign(phase_ == Phase::ending || leaving_ ? Use::stop : Use::other, now);
    phase_ = Phase::gathering;
  }
  assign(Use::waiting, now);
  code_ = code;
}

// Nothing is known of what has followed, so it ends here.
void Account::end_without_a_word(Micros now) {
  if (has_processes()) {
    fail(kNoWord, now);
    assign(Use::stop, now);  // unless it was noticed just now
    phase_ = Phase::gathering;
  }
  assign(Use::waiting, now);
}

Account Account::closed() const {
  Account copy = *this;
  copy.end_without_a_word(copy.last_);
  const auto kept = copy.kept_ || !copy.tells_kept_ ? copy.kept_ : copy.lowest_;
  if (kept && copy.code_ != 0 && *kept < copy.highest_) {
    copy.repeat_after(*kept);
    copy.highest_ = *kept;
  }
  return copy;
}

// --- Uses

void Account::assign(Use use, Micros to) {
  const auto time = to - until_;
  if (time <= 0) return;
  uses_[use] += time;
  (has_processes() ? current().uses : between_)[use] += time;
  if (use != Use::queue) node_seconds_ += static_cast<double>(time) / 1e6 * allocated_nodes_;
  until_ = to;
}

Uses& Account::uses_of(std::int64_t generation) {
  if (generations_.empty() || generation < generations_.front().number) return older_;
  return generations_[static_cast<std::size_t>(generation - generations_.front().number)].uses;
}

void Account::repeat_after(std::int64_t step) {
  pieces_.take_after(step, [this](const StepPieces::Piece& piece) {
    for (Uses* uses : {&uses_, &uses_of(piece.generation)}) {
      (*uses)[Use::productive] -= piece.productive;
      (*uses)[Use::degraded] -= piece.degraded;
      (*uses)[Use::repeat] += piece.productive + piece.degraded;
    }
  });
}

Micros Account::mean_step() const {
  if (number_of_its_steps_ > 0) return time_of_its_steps_ / number_of_its_steps_;
  return number_of_steps_ > 0 ? time_of_steps_ / number_of_steps_ : 0;
}

}  // namespace ddp::elastic
