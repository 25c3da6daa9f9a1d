// SPDX-License-Identifier: Apache-2.0
// The network's part of a task's plan, made by fabric/.
#pragma once

#include <optional>

#include "spank_plugin/fabric/plan/plan.h"
#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/facts.h"
#include "spank_plugin/launch/step/marker.h"

namespace ddp::launch {

// Collects the inputs of fabric/ from the step and this task. Queries only the kernel, for the
// route to the leader. Throws LaunchError like choose_mode.
fabric::Request fabric_request(const Facts& facts, const Settings& settings);

// Reads the node's network configuration from sysfs and a few configuration files. Call it in the
// task, as the user, so that a hanging read does not block other tasks; and inside the container,
// if there is one, because NCCL sees the container's files. Empty for fabric=off. Throws
// LaunchError for a preset that does not exist, or std::bad_alloc. `site`: the host's site file,
// read before entering the container; nullopt to read it now.
FabricPart find_fabric_part(const Facts& facts, const Settings& settings,
                            const EnvLookup& environment, const Inherited& inherited,
                            const std::optional<fabric::Site>& site = std::nullopt);

}  // namespace ddp::launch
