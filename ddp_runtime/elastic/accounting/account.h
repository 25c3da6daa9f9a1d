// SPDX-License-Identifier: Apache-2.0
// Where the time of one run went, over all of its generations and jobs. Pure: the entries of
// events.jsonl in, in their order, sums out.
//
// Note [Each moment has one use]
// `until_` divides the run: the time before it has been given to uses, which sum to it at any
// moment; the time after it has not. Most entries say what the time up to them was used for. While
// steps are made, only `progress` does, because it knows how long the steps took; what is left
// when the generation fails is the step that was lost, and the time until that was noticed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/accounting/entry.h"
#include "ddp_runtime/elastic/accounting/step_pieces.h"
#include "ddp_runtime/elastic/accounting/uses.h"

namespace ddp::elastic {

// One start of the program.
struct GenerationAccount {
  std::int64_t number = 0;  // over all jobs, from 1
  std::string job;
  int generation = 0;  // in its job
  int nodes = 0;
  int ranks = 0;
  Micros begun = 0;  // since the run began; its uses begin with what was before
  std::optional<std::int64_t> from_step;  // nullopt: it has made no step
  std::int64_t to_step = 0;
  std::int64_t steps_repeated = 0;  // that an earlier generation had already made
  std::string restored_from;        // as describe(State)
  bool failed = false;
  std::string why_ended;  // empty: it has ended well
  std::vector<std::string> blamed;
  std::optional<Micros> detected_after;   // from the last step until its failure was noticed
  std::optional<Micros> recovered_after;  // from then until a later one trained
  Uses uses;                              // with the time before it in which no process ran
};

class Account {
 public:
  // The newest generations have an account of their own; the older ones share one.
  static constexpr std::size_t kMaxGenerations = 1000;
  static constexpr std::size_t kMaxExcluded = 1000;

  // All of one run, beginning with `begin`.
  void add(const Entry& entry);

  // As if the run ended with the last entry. If the program has not ended well, the steps after the
  // last state that is known to be kept count as repeated, because they are lost if it ends here;
  // all of them, if it tells what it keeps, and has told of none on a disk.
  Account closed() const;

  // Since the run began.
  Micros wall() const noexcept { return until_; }
  const Uses& uses() const noexcept { return uses_; }
  const std::deque<GenerationAccount>& generations() const noexcept { return generations_; }
  std::int64_t number_of_generations() const noexcept { return next_number_ - 1; }
  // The uses of generations that are not listed any more, and of the time after the last one.
  const Uses& older() const noexcept { return older_; }
  const Uses& after() const noexcept { return between_; }

  std::int64_t faults() const noexcept { return faults_; }
  std::int64_t jobs() const noexcept { return jobs_; }
  std::int64_t steps() const noexcept { return highest_; }  // that are in the final state
  std::int64_t first_step() const noexcept { return lowest_.value_or(0); }
  std::int64_t steps_repeated() const noexcept { return steps_repeated_; }
  bool told_steps() const noexcept { return lowest_.has_value(); }
  bool made_steps() const noexcept { return number_of_steps_ > 0; }
  std::int64_t saves() const noexcept { return saves_; }
  double node_seconds() const noexcept { return node_seconds_; }  // allocated, without the queue
  // Node to why; the newest reason.
  const std::map<std::string, std::string>& excluded() const noexcept { return excluded_; }
  double unix_begin() const noexcept { return unix_begin_; }
  // Nothing follows in this job. Its exit code, if it has ended by itself.
  std::optional<int> code() const noexcept { return code_; }

 private:
  enum class Phase : std::uint8_t { gathering, launching, started, loading, training, ending };

  Micros time_of(const Entry& entry) const;
  void begin(const Entry& entry);
  void start(const Entry& entry, Micros now);
  void rank_ready(const Entry& entry, Micros now);
  void rank_ended(const Entry& entry, Micros now);
  void restoring(Micros now);
  void training(std::int64_t step, Micros now);
  void begin_unannounced(const Entry& entry, Micros now);
  void progress(const Entry& entry, Micros now);
  void progress_told_late(std::int64_t step);
  void kept(std::int64_t step);
  void leave(const std::string& why, Micros now);
  void fail(const std::string& why, Micros now);
  void failed(const Entry& entry, Micros now);
  void executor_gone(const Entry& entry, Micros now);
  void finish(int code, Micros now);
  void end_without_a_word(Micros now);

  void assign(Use use, Micros to);
  void assign_steps(Micros productive, std::int64_t to_step);
  Use use_before_training() const;
  void assign_lost_step(Micros now);
  void repeat_after(std::int64_t step);
  Uses& uses_of(std::int64_t generation);
  Micros mean_step() const;
  bool has_processes() const noexcept { return phase_ != Phase::gathering; }
  GenerationAccount& current() { return generations_.back(); }

  // The run
  Uses uses_;
  Micros until_ = 0;
  Micros last_ = 0;  // time of the last entry
  double unix_begin_ = 0;
  double last_unix_ = 0;
  std::int64_t jobs_ = 0;
  std::int64_t faults_ = 0;
  std::int64_t saves_ = 0;
  double node_seconds_ = 0;
  std::map<std::string, std::string> excluded_;
  std::deque<GenerationAccount> generations_;
  Uses older_;
  Uses between_;  // since the end of the last generation
  std::int64_t next_number_ = 1;
  std::optional<int> code_;

  // Its steps
  StepPieces pieces_;
  std::int64_t highest_ = 0;
  std::optional<std::int64_t> lowest_;
  std::optional<std::int64_t> kept_;
  bool tells_kept_ = false;  // the program tells what it keeps, or that it looks for it
  std::int64_t steps_repeated_ = 0;
  Micros time_of_steps_ = 0;
  std::int64_t number_of_steps_ = 0;

  // The job
  Micros job_begun_ = 0;
  std::string job_;
  int full_nodes_ = 0;
  int allocated_nodes_ = 0;
  int ranks_per_node_ = 1;

  // The generation
  Phase phase_ = Phase::gathering;
  int generation_ = 0;  // in its job
  bool leaving_ = false;
  int ready_ = 0;
  int ended_well_ = 0;
  Micros told_steps_time_ = 0;  // that has been given to uses
  Micros told_stall_time_ = 0;
  std::int64_t told_saves_ = 0;
  Micros time_of_its_steps_ = 0;
  std::int64_t number_of_its_steps_ = 0;
  std::optional<Micros> failed_at_;            // since when no steps are made
  std::optional<std::int64_t> failed_number_;  // the generation that failed then
};

}  // namespace ddp::elastic
