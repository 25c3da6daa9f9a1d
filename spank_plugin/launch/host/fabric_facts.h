#pragma once
// What the node's network asks for, as part of a plan: the fabric room's plan, made for this task.

#include <optional>

#include "spank_plugin/fabric/plan.h"
#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/marker.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

// What the room next door must know of the step and of this task. Asks the kernel for the way to
// the leader, and nothing else. Throws LaunchError like choose_mode.
fabric::Request fabric_request(const Facts& facts, const Settings& settings);

// Reads the node's network, which means sysfs and a few configuration files: to be called in the
// task, as the user, so that whatever hangs there holds up nobody else; and in the container, if
// there is one, because that is what NCCL will see. Empty for fabric=off.
// Throws LaunchError for a preset that does not exist, and std::bad_alloc.
// `site`: the host's site file, from before the container; nothing to read it now.
FabricPart find_fabric_part(const Facts& facts, const Settings& settings,
                            const EnvLookup& environment, const Inherited& inherited,
                            const std::optional<fabric::Site>& site = std::nullopt);

}  // namespace ddp::launch
