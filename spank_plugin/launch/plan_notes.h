#pragma once
// What is legal in a step, but often a mistake: said, with the remedy, and done all the same.

#include "spank_plugin/launch/plan_builder.h"

namespace ddp::launch {

// Adds the notes to a plan that has its variables. `plan` is what `builder` builds.
void add_notes(PlanBuilder& builder, const Plan& plan, const Facts& facts, Order order);

// Lightning takes the first of the job's nodes for rank 0's, and sets MASTER_ADDR to it: said by
// rank 0 where that is wrong, as in a step elsewhere in its job.
void note_lightning(PlanBuilder& builder, const Plan& plan, const Facts& facts,
                    const Inherited& inherited);

// About a single task on each node: GPUs that nobody may use, and frameworks' launchers that know
// nothing of the other nodes.
void note_launchers(PlanBuilder& builder, const Facts& facts);

}  // namespace ddp::launch
