// Files for others to read: whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace ddp::comm {

// Writes a temporary file of a random name beside `path`, flushes it to the device and renames it,
// so that a reader never sees half a file, a full disk leaves the old one, and links that somebody
// planted are replaced and not followed. Throws RuntimeError with the reason.
void replace_file(const std::string& path, std::string_view content);

// The same, but what is not a regular file, as /dev/stdout or a FIFO, is written to. Not for files
// in directories that others can write.
void write_file(const std::string& path, std::string_view content);

}  // namespace ddp::comm
