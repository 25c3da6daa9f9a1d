// The preset that the user or the site asks for, value by value.
#pragma once

#include "spank_plugin/fabric/plan_builder.h"

namespace ddp::fabric {

// Leaves out, with a warning, what cannot work on this node: an interface pattern that nothing
// fits would make NCCL fail. Throws FabricError if there is no such preset.
void apply_preset(const Node& node, const Request& request, PlanBuilder& builder);

}  // namespace ddp::fabric
