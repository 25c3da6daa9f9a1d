// SPDX-License-Identifier: Apache-2.0
// The memory that this process may still use before the kernel kills it or another process in its
// group. Allocating does not reveal it: in a control group (SLURM creates one for each job and
// step) the allocation succeeds, and the process is killed when it fills the memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ddp::ckpt {

// Returns the minimum of the machine's available memory and the memory left below the limits of
// this process's control group and its parents, for cgroup versions 1 and 2. File data in the page
// cache counts as free, because the kernel drops it first. Returns nullopt if none of these is
// known. `root` is the directory in which /proc and /sys/fs/cgroup are looked up.
std::optional<std::uint64_t> memory_headroom(const std::filesystem::path& root = "/");

}  // namespace ddp::ckpt
