// SPDX-License-Identifier: Apache-2.0
// Notes on what is legal in a step but often a mistake: reported with the remedy, and done anyway.
#pragma once

#include "spank_plugin/launch/plan_builder.h"

namespace ddp::launch {

// Adds the notes to a plan whose variables are complete. `plan` is the one that `builder` builds.
void add_notes(PlanBuilder& builder, const Plan& plan, const Facts& facts, Order order);

// Lightning assumes that rank 0 is on the first of the job's nodes, and sets MASTER_ADDR to it:
// rank 0 reports if that is wrong, as in a step elsewhere in its job.
void note_lightning(PlanBuilder& builder, const Plan& plan, const Facts& facts,
                    const Inherited& inherited);

// For a single task on each node: reports GPUs that may stay unused, and framework launchers that
// do not know about the other nodes.
void note_launchers(PlanBuilder& builder, const Facts& facts);

}  // namespace ddp::launch
