// SPDX-License-Identifier: Apache-2.0
// Notes on legal settings of a step that are often mistakes. They name the remedy; the settings
// take effect anyway.
#pragma once

#include "spank_plugin/launch/plan/plan_builder.h"

namespace ddp::launch {

// Adds the notes to a plan whose variables are complete. `plan` is the plan that `builder` builds.
void add_notes(PlanBuilder& builder, const Plan& plan, const Facts& facts, Order order);

// Lightning sets MASTER_ADDR to the job's first node, assuming that rank 0 is there. Adds a note
// for rank 0 if that is wrong, as in a step on other nodes of the job.
void note_lightning(PlanBuilder& builder, const Plan& plan, const Facts& facts,
                    const Inherited& inherited);

// For a single task on each node: reports GPUs that may stay unused, and framework launchers that
// do not know about the other nodes.
void note_launchers(PlanBuilder& builder, const Facts& facts);

}  // namespace ddp::launch
