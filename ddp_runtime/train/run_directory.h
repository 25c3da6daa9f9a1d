// SPDX-License-Identifier: Apache-2.0
// Whose run this is, and whether it can write to its checkpoint directory.
#pragma once

#include <filesystem>
#include <string>

#include "hdf5_ckpt/owner_tag.h"

namespace ddp::train {

// SLURM's job id tells a requeued job's own leftovers from the work of others.
ckpt::OwnerTag this_owner();

// Creates the directory if it does not exist and tries to write to it: finding out at the first
// save that it is not possible would waste the work until then. Returns why it cannot be written;
// empty if it can.
std::string why_not_writable(const std::filesystem::path& directory);

}  // namespace ddp::train
