// SPDX-License-Identifier: Apache-2.0
// A guard's look at its rank, once a second: does it make progress? The guards of a node share what
// they see, and one of them says it when all ranks stand still.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/deadline.h"
#include "spank_plugin/guard/guard_options.h"
#include "spank_plugin/guard/node_record.h"
#include "spank_plugin/watch/progress.h"
#include "spank_plugin/watch/python_stacks.h"
#include "spank_plugin/watch/stall_rule.h"
#include "spank_plugin/watch/wait_channel.h"
#include "spank_plugin/watch/worker_ranks.h"

namespace ddp::guard {

class RankWatch {
 public:
  // Off on a node with more tasks of the step than NodeRecord::kMaxRanks.
  RankWatch(pid_t task, const GuardOptions& options, NodeRecord& record);

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

 private:
  void begin_slot() noexcept;
  // Looks for the record of the node's first rank, which may not have made it yet.
  void find_record();
  RankSlot& own_slot() noexcept { return record_.slot(options_.local_rank); }
  void write_slot(const watch::Reading& reading);
  // Returns whether all guards of the node are there and awake; only then it is known what their
  // ranks do.
  bool read_slots(Clock::time_point now);
  // Asks where the ranks of this task stand if a stall is to be told soon.
  void ask_in_time(const watch::Reading& reading);
  // The ranks of this task: its own, or torchrun's workers.
  struct WaitingRank {
    std::uint32_t rank = 0;
    watch::WaitingProcess process;
  };
  std::vector<WaitingRank> waiting_processes(const watch::Reading& reading) const;
  // And what they wait for.
  std::vector<watch::RankWait> own_waits(const watch::Reading& reading) const;
  std::string speech(const watch::Finding& finding, const watch::StallReports::Decision& decision,
                     const watch::Reading& reading) const;

  pid_t task_;
  const GuardOptions& options_;
  NodeRecord& record_;
  watch::ProgressMeter meter_;
  watch::WorkerRanks workers_;  // of an agent
  watch::PythonStacks stacks_;
  bool has_asked_ = false;  // for the report that comes next
  bool has_slot_;
  int searches_left_ = 0;  // for a record
  Deadline next_look_ = Deadline::max();
  std::vector<watch::RankReport> ranks_;  // of this node
  watch::StallReports reports_;
};

}  // namespace ddp::guard
