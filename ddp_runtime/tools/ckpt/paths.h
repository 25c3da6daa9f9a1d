// SPDX-License-Identifier: Apache-2.0
// What a path that the user gives stands for.
#pragma once

#include <filesystem>
#include <optional>

#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt::tool {

// Returns `path` if it is a checkpoint, or the newest checkpoint if it is a directory of
// checkpoints; nullopt if it is neither. Like ddp-train, takes no checkpoint whose directory has
// the name of another step.
std::optional<std::filesystem::path> checkpoint_in(const std::filesystem::path& path);

// The same; throws UsageError if there is no checkpoint.
std::filesystem::path checkpoint_at(const std::filesystem::path& path);

// Throws UsageError saying what the path is, if it is not a directory.
void require_directory(const std::filesystem::path& path);

// Throws DamagedError if the checkpoint's directory has the name of another step.
void require_own_name(const Checkpoint& checkpoint);

}  // namespace ddp::ckpt::tool
