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
  RankWatch(pid_t task, const GuardOptions& options, NodeRecord& record);

  Deadline next_look() const noexcept { return next_look_; }
  // Looks at the rank and at what the other guards wrote. Returns what to say; most often nothing.
  std::string look();
  // The task has ended, with a status of waitpid(2).
  void end(int status);

 private:
  void write_slot(const std::vector<watch::Process>& processes);
  // Whether all guards of the node are there and awake; only then it is known what their ranks do.
  bool read_slots();
  std::string speech(const watch::Finding& finding,
                     const watch::StallReports::Decision& decision) const;

  pid_t task_;
  const GuardOptions& options_;
  NodeRecord& record_;
  Deadline next_look_;
  watch::ProgressMeter meter_;
  std::vector<watch::RankReport> ranks_;  // of this node
  watch::StallReports reports_;
};

}  // namespace ddp::guard
