#pragma once
// How much memory this process may still take before the kernel kills it or another one of its
// group. A mapping does not tell: in a control group (SLURM makes one for each job and step) it
// succeeds, and the process dies when it is filled.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ddp::ckpt {

// The least of what the machine has available and what the limits of this process's control group,
// and of those around it, leave, in version 1 and 2. What the page cache holds of files counts as
// free, since the kernel gives it up first. Nothing if nobody says. `root` is where /proc and
// /sys/fs/cgroup are looked for.
std::optional<std::uint64_t> memory_headroom(const std::filesystem::path& root = "/");

}  // namespace ddp::ckpt
