// SPDX-License-Identifier: Apache-2.0
// Reads small text files of untrusted origin.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace ddp {

// Returns at most the first `max_bytes` of a regular file; nullopt if the file does not exist,
// cannot be read or is not a regular file, because a pipe would block and a device may do anything.
std::optional<std::string> read_text(const std::filesystem::path& file, std::size_t max_bytes);

// A file of /proc, /sys or the cgroups: the first 64 KiB; empty if it cannot be read.
std::string read_kernel_file(const std::filesystem::path& file);

}  // namespace ddp
