// SPDX-License-Identifier: Apache-2.0
// What a guard concludes from the ranks of its node and, on rank 0's node, from those of the
// others: when the step is said to hang. One guard of the step says it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "spank_plugin/guard/guard_options.h"
#include "spank_plugin/guard/node_link.h"
#include "spank_plugin/guard/node_record.h"
#include "spank_plugin/watch/node_report.h"
#include "spank_plugin/watch/stall_rule.h"

namespace ddp::guard {

class StepWatch {
 public:
  // Without `make_link`, the ranks of other nodes stay unknown.
  StepWatch(const GuardOptions& options, NodeRecord& record, MakeLink make_link)
      : options_(options), record_(record), make_link_(std::move(make_link)) {}

  // Whether the guards of this node, and those of all nodes of the step, can find each other.
  bool can_reach_node() const noexcept;
  bool can_reach_all() const;
  // Opens the link to the other nodes, if there are any and is none; for the one guard of a node
  // that speaks for it. `node`: rank of the node's first task.
  void speak_for_node(std::uint32_t node) noexcept;
  void stop_speaking() noexcept { link_.reset(); }
  // This guard's task has ended. `own`: the ranks of this node, of which none runs any more if
  // `is_over`.
  void finish(const watch::RanksReport& own, bool is_over) noexcept;

  struct Outcome {
    std::string speech = {};    // what to say; most often nothing
    bool wants_places = false;  // it would help to know where the ranks of this node stand
    bool ends_step = false;     // because of what it says
  };
  // Passes the decision that the step ends on, between this node and the others.
  void exchange_step_end() noexcept;
  // Whether this guard, which speaks for its node, also speaks for the step.
  bool speaks_for_step() const noexcept {
    return !link_ || link_->is_hub() || !link_->is_connected();
  }
  // Takes what is known of the ranks of this node.
  Outcome update(const watch::RanksReport& own, Clock::time_point now);

 private:
  // All ranks that are known, in order.
  struct Known {
    watch::RanksReport ranks;
    bool is_whole_step = false;
  };
  Known add_others(const watch::RanksReport& own, Clock::time_point now) const;
  void add_ended(watch::RanksReport& ranks) const;
  bool is_due_soon(const watch::RanksReport& step) const;

  const GuardOptions& options_;
  NodeRecord& record_;
  MakeLink make_link_;
  std::unique_ptr<NodeLink> link_;
  watch::StallReports reports_;
};

}  // namespace ddp::guard
