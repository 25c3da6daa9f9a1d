// Values that users and files bring along, and that are known to do harm: copied from a recipe for
// another cluster, or left over from a debugging session.
#pragma once

#include "spank_plugin/fabric/plan_builder.h"

namespace ddp::fabric {

// Warns; changes nothing. `builder` tells the values, `node` what they meet here.
void warn_of_user_overrides(const Node& node, PlanBuilder& builder);

}  // namespace ddp::fabric
