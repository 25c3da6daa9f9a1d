// SPDX-License-Identifier: Apache-2.0
// Reads small text files of untrusted origin.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace ddp::fabric {

// At most the first `max_bytes` of a regular file; nothing if there is none, it cannot be read or
// is something else: a pipe would block, a device may do anything.
std::optional<std::string> read_text(const std::filesystem::path& file, std::size_t max_bytes);

}  // namespace ddp::fabric
