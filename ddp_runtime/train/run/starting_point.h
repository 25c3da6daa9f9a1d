// SPDX-License-Identifier: Apache-2.0
// The state of a run that started from a checkpoint elsewhere and has nothing left to train.
#pragma once

#include <filesystem>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/checkpoint/checkpointer.h"
#include "ddp_runtime/train/run/progress.h"

namespace ddp::train {

// Collective. Saves the state unless the newest checkpoint is in `directory`, that of this run: the
// next job of a chain looks for it there. Throws RuntimeError on all ranks if it could not be
// saved.
void keep_starting_point(comm::Group& group, Checkpointer& checkpointer, const Position& position,
                         const std::filesystem::path& directory, Progress& progress);

}  // namespace ddp::train
