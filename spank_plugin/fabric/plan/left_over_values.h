// SPDX-License-Identifier: Apache-2.0
// Variables that are rarely meant for this job: those of a debugging session, those that are copied
// between public job scripts, and texts where NCCL reads a number.
#pragma once

#include "spank_plugin/fabric/plan/plan_builder.h"

namespace ddp::fabric {

// Adds a warning for each; changes nothing.
void warn_of_left_over_values(const Node& node, PlanBuilder& builder);

}  // namespace ddp::fabric
