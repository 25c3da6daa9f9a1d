// SPDX-License-Identifier: Apache-2.0
// Reads the small files of a /sys tree. A file that is missing, unreadable or too large for an
// attribute counts as absent: drivers return EINVAL for attributes that do not apply, containers
// hide files, and none of that is an error here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddp::fabric {

// Returns the content without leading and trailing white space; nullopt above 4096 bytes, the size
// of a sysfs page.
std::optional<std::string> read_attribute(const std::filesystem::path& file);

// Returns the leading integer of an attribute, decimal or with 0x: 5 for "5: LinkUp", 26 for
// "0x1a".
std::optional<std::int64_t> read_integer(const std::filesystem::path& file);

// Returns the last component of the target of a symbolic link; nullopt if it is not a link.
std::optional<std::string> read_link_name(const std::filesystem::path& link);

// Returns the names in a directory, sorted, at most `most` of them; empty if it cannot be read.
std::vector<std::string> list_names(const std::filesystem::path& directory, std::size_t most);

}  // namespace ddp::fabric
