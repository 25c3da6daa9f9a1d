// Files that a tool writes for others to read: whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace ddp::tools {

// Writes a temporary file beside `path`, flushes it to the device and renames it, so that a reader
// never sees half a file and a full disk leaves the old one. Throws RuntimeError with the reason.
void write_file(const std::string& path, std::string_view content);

}  // namespace ddp::tools
