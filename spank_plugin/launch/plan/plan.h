// SPDX-License-Identifier: Apache-2.0
// The plan of one task: every variable that makes it a rank of a distributed training job, each
// with its origin and its rule.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/facts.h"
#include "spank_plugin/launch/step/marker.h"

namespace ddp::launch {

struct Plan {
  std::vector<PlanEntry> entries;
  std::vector<std::string> notes;       // legal settings that are often mistakes; printed by rank 0
  std::vector<std::string> node_notes;  // known only on this node; printed by its first task
  std::vector<std::string> remarks;     // unchanged variables and the reasons, for an explanation
  std::string fabric;                   // the node's network in one phrase; may be empty
  std::string step;                     // StepFacts::id
  std::string node;                     // the node on which this task runs
  Mode mode = Mode::rank;               // rank or torchrun
  std::uint32_t rank = 0;               // the task's rank; its agent's under torchrun
  std::uint32_t local_rank = 0;
  std::uint32_t local_task_count = 1;
  std::uint32_t task_count = 1;
  std::uint32_t node_count = 1;  // 0 if unknown
  // A task that fails may leave the others at work: each node trains by itself, or torchrun lets
  // nodes leave.
  bool tasks_may_leave = false;

  // Null if the plan does not have the variable.
  const PlanEntry* find(std::string_view name) const noexcept;

  // Returns the notes that this task prints: the step's if it is rank 0, its node's if it is the
  // node's first task.
  std::vector<std::string> own_notes() const;
};

// Rank variables are always set, because an inherited one is never right. MASTER_ADDR and
// MASTER_PORT are kept if the user set them, unless the command line overrides them. Throws
// UsageError if no correct value is known.
Plan make_plan(const Facts& facts, const Settings& settings, const Inherited& inherited);

}  // namespace ddp::launch
