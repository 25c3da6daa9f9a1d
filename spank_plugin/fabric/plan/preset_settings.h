// SPDX-License-Identifier: Apache-2.0
// Applies the preset that the user or the site requests, value by value.
#pragma once

#include "spank_plugin/fabric/plan/plan_builder.h"

namespace ddp::fabric {

// Leaves out, with a warning, values that cannot work on this node: NCCL would fail on an interface
// pattern that matches nothing. Throws FabricError if there is no such preset.
void apply_preset(const Node& node, const Request& request, PlanBuilder& builder);

}  // namespace ddp::fabric
