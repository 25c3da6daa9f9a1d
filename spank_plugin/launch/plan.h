#pragma once
// The plan of one task: every variable that turns it into a rank of a distributed training job,
// and for each where the value comes from and by which rule.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/marker.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

struct Plan {
  std::vector<PlanEntry> entries;
  std::vector<std::string> notes;       // what is legal, but often a mistake; for rank 0 to say
  std::vector<std::string> node_notes;  // what only this node knows; for its first task to say
  std::vector<std::string> remarks;     // what was left alone, and why: for an explanation
  std::string fabric;                   // the node's network in one phrase; may be empty
  std::string step;                     // StepFacts::id
  std::string node;                     // where this task runs
  Mode mode = Mode::rank;               // rank or torchrun
  std::uint32_t rank = 0;               // of this task; of its agent under torchrun
  std::uint32_t local_rank = 0;
  std::uint32_t task_count = 1;
  std::uint32_t node_count = 1;  // 0 if unknown

  // Nothing if the plan has no such variable.
  const PlanEntry* find(std::string_view name) const noexcept;

  // The notes that this task is to say: those of the step if it is rank 0, those of its node if it
  // is the first there.
  std::vector<std::string> own_notes() const;
};

// Rank variables are always set: an inherited one is never right. MASTER_ADDR and MASTER_PORT are
// kept if the user set them and the command line does not say otherwise.
// Throws UsageError where no right value is known.
Plan make_plan(const Facts& facts, const Settings& settings, const Inherited& inherited);

}  // namespace ddp::launch
