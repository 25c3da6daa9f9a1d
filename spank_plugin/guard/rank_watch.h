// SPDX-License-Identifier: Apache-2.0
// A guard's look at its rank, once a second: does it make progress? The guards of a node share what
// they see, and one of them says it when all ranks stand still.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "spank_plugin/guard/guard_options.h"
#include "spank_plugin/guard/node_record.h"
#include "spank_plugin/guard/step_watch.h"
#include "spank_plugin/watch/node_report.h"
#include "spank_plugin/watch/progress.h"
#include "spank_plugin/watch/python_stacks.h"
#include "spank_plugin/watch/wait_channel.h"
#include "spank_plugin/watch/worker_ranks.h"

namespace ddp::guard {

class RankWatch {
 public:
  // Off on a node with more tasks of the step than NodeRecord::kMaxRanks.
  RankWatch(pid_t task, const GuardOptions& options, NodeRecord& record, MakeLink make_link = {});

  // Deadline::max() if it is off.
  Deadline next_look() const noexcept { return next_look_; }
  // Looks at the rank and at what the other guards wrote. Returns what to say; most often nothing.
  std::string look();
  // The second half of look(): what follows from a reading of the rank.
  std::string take(const watch::Reading& reading);
  // Turns it off; then no guard of the node knows enough to say something.
  void give_up() noexcept { next_look_ = Deadline::max(); }
  // The task has ended, with a status of waitpid(2).
  void end(int status) noexcept;
  // Then, when there is nothing more to say: its last words to the guards of other nodes.
  void leave() noexcept;

  // Whether and when the step ends, as guards of this node and of others have decided.
  std::optional<StepEnd> step_end() noexcept;
  void end_step(const StepEnd& end) noexcept { record_.end_step(end); }
  // How many ranks end then, with this one: all of the step, or those of this node.
  std::uint32_t ending_ranks() const;
  // What is said of that, after the cause.
  std::string what_ends() const;
  // The task has been told to end: from now on its progress is measured anew, and more often.
  void look_closely();
  // Whether it then makes no progress, and does not wait for a device either.
  bool stands_still() const noexcept;
  // The same for what the task has left behind; to be called again and again.
  bool rest_stands_still();
  // Whether this guard is the one that speaks for the step.
  bool speaks_for_step() const noexcept { return speaks_ && step_.speaks_for_step(); }

 private:
  watch::Reading read();
  void measure(const watch::Reading& reading);
  void begin_slot() noexcept;
  // Looks for the record of the node's first rank, which may not have made it yet.
  void find_record();
  RankSlot& own_slot() noexcept { return record_.slot(options_.local_rank); }
  void write_slot(const watch::Reading& reading);
  // Returns the ranks of this node; nullopt unless all its guards are there and awake, because only
  // then it is known what their ranks do.
  std::optional<watch::RanksReport> read_slots(const watch::Reading& reading) const;
  // Whether this is the node's first guard whose rank runs.
  bool is_first(const watch::RanksReport& ranks) const;
  bool is_last(std::uint32_t left) noexcept;
  // Where a guard was killed, and its task with it: says so, and ends the step.
  std::string name_killed_guard(Clock::time_point now);
  // Asks where the ranks of this task stand if a guard of the node wants to know it.
  void ask_if_wanted(const watch::Reading& reading);
  // The ranks of this task: its own, or torchrun's workers.
  struct WaitingRank {
    std::uint32_t rank = 0;
    watch::WaitingProcess process;
  };
  std::vector<WaitingRank> waiting_processes(const watch::Reading& reading) const;
  // And what they wait for.
  std::vector<watch::RankWait> own_waits(const watch::Reading& reading) const;

  pid_t task_;
  const GuardOptions& options_;
  NodeRecord& record_;
  watch::ProgressMeter meter_;
  watch::WorkerRanks workers_;  // of an agent
  watch::PythonStacks stacks_;
  bool has_asked_ = false;  // since it is wanted
  bool has_slot_;
  bool speaks_ = false;  // for this node
  bool looks_closely_ = false;
  Clock::time_point looked_at_;
  bool is_runnable_ = false;  // then
  int searches_left_ = 0;     // for a record
  Deadline next_look_ = Deadline::max();
  StepWatch step_;
};

}  // namespace ddp::guard
