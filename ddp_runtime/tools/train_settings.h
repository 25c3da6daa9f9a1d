// SPDX-License-Identifier: Apache-2.0
// What a command line of ddp-train asks for, in the types of the runtime.
#pragma once

#include <optional>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/tools/train_command_line.h"
#include "ddp_runtime/train/model/initialize.h"

namespace ddp::tools {

// Performs the checks that CLI11 cannot, and sets the options of the training that are not text.
// Throws UsageError.
void interpret(TrainCommandLine& line);

// The weights to start from; nullopt without --init-from. Reads the map. Throws UsageError.
std::optional<train::InitialWeights> initial_weights_of(const TrainCommandLine& line);

// The world options requested on the command line. Throws UsageError.
comm::WorldOptions world_options_of(const TrainCommandLine& line);

}  // namespace ddp::tools
