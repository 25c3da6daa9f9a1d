// SPDX-License-Identifier: Apache-2.0
// Access to environment variables through a function, so that the plugin (a task's environment),
// ddp-launch (its own environment) and the tests (a table) share the same code.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launch {

// Returns the value of a variable, or nullopt if it is not set.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

namespace variable {

// Variables that the plugin in srun passes to the nodes. The names start with SLURM, because
// otherwise they would not pass `srun --export=NONE`.
inline constexpr const char* kSettings = "SLURM_DDP_SETTINGS";        // see encode_settings
inline constexpr const char* kRankZeroHost = "SLURM_DDP_HEAD";        // from the step's hostfile
inline constexpr const char* kComponents = "SLURM_DDP_COMPONENTS";    // of a step `srun a : b`
inline constexpr const char* kSwitchMap = "SLURM_DDP_SWITCHES";       // see switch_map.h
inline constexpr const char* kNodeAddresses = "SLURM_DDP_NODE_ADDR";  // see node_address.h

// In a task with a guard: its step, because the steps that it starts inherit the variable.
inline constexpr const char* kGuarded = "SLURM_DDP_GUARDED";

// A planned step passes this to the steps that are started inside it; see marker.h.
inline constexpr const char* kMarker = "SLURM_DDP_SET";

// Set by SLURM: in a task, the step's value; in srun's environment, the default of an option.
inline constexpr const char* kTasksPerNode = "SLURM_NTASKS_PER_NODE";

// The user's own default for --ddp.
inline constexpr const char* kUserSpec = "SLURM_DDP";

}  // namespace variable
}  // namespace ddp::launch
