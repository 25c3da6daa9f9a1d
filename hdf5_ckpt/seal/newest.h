// SPDX-License-Identifier: Apache-2.0
// The checkpoint to resume from, among those of any program.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hdf5_ckpt/seal/sealing.h"

namespace ddp::ckpt {

// Whether a directory has the name of a checkpoint of this project and a manifest, and no seal.
bool is_of_this_project(const std::filesystem::path& checkpoint);

// Returns the checkpoints in `root`, which need not exist: those that are sealed, those of this
// project, and those that look as if another program had saved them.
std::vector<std::filesystem::path> unsorted_checkpoints(const std::filesystem::path& root);
// The same, the newest one first.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& root);

// Returns the newest one of which every byte is as it was sealed, or saved by this project. None if
// there are no checkpoints, or `root` does not exist. Calls `pass_over` with a sentence for each
// newer one, which says why it is not whole. Throws Error if there are some and none is whole, or
// they are not in `root` itself, but below; UnreadableError if it is not known of one, because it
// may be the newest.
std::optional<std::filesystem::path> newest_whole(
    const std::filesystem::path& root, const SealOptions& options,
    const std::function<void(const std::string&)>& pass_over);

}  // namespace ddp::ckpt
