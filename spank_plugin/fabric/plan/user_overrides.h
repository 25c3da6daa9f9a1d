// SPDX-License-Identifier: Apache-2.0
// Warns of harmful values from users and configuration files, for example values copied from a
// recipe for another cluster or left over from a debugging session.
#pragma once

#include "spank_plugin/fabric/plan/plan_builder.h"

namespace ddp::fabric {

// Adds warnings and changes nothing. `builder` provides the values, `node` the hardware they apply
// to. In a step of one node, interfaces that other nodes do not reach are fine.
void warn_of_user_overrides(const Node& node, bool is_one_node, PlanBuilder& builder);

}  // namespace ddp::fabric
