// Reads the small files of a /sys tree. Whatever is missing, unreadable or too large to be an
// attribute is absent: drivers answer EINVAL for what does not apply, containers hide files, and
// none of that is an error of the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddp::fabric {

// The content without white space at its ends. Absent above 4096 bytes, the size of a sysfs page.
std::optional<std::string> read_attribute(const std::filesystem::path& file);

// The leading integer of an attribute, decimal or with 0x: 5 for "5: LinkUp", 26 for "0x1a".
std::optional<std::int64_t> read_integer(const std::filesystem::path& file);

// The last component of what a symbolic link points to; absent if it is none.
std::optional<std::string> read_link_name(const std::filesystem::path& link);

// Names in a directory, sorted, at most `most` of them; none if it cannot be read.
std::vector<std::string> list_names(const std::filesystem::path& directory, std::size_t most);

}  // namespace ddp::fabric
