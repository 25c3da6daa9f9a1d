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
#include "spank_plugin/watch/stall_rule.h"

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
  RankSlot& own_slot() noexcept { return record_.slot(options_.local_rank); }
  void write_slot(const watch::Reading& reading);
  // Returns whether all guards of the node are there and awake; only then it is known what their
  // ranks do.
  bool read_slots(Clock::time_point now);
  std::string speech(const watch::Finding& finding,
                     const watch::StallReports::Decision& decision) const;

  pid_t task_;
  const GuardOptions& options_;
  NodeRecord& record_;
  watch::ProgressMeter meter_;
  bool has_slot_;
  Deadline next_look_ = Deadline::max();
  std::vector<watch::RankReport> ranks_;  // of this node
  watch::StallReports reports_;
};

}  // namespace ddp::guard
