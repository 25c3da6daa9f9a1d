#pragma once
// Small text files as strings. Without streams: this also runs inside srun and slurmstepd, which
// shall not get a second set of locales and standard streams.

#include <optional>
#include <string>

namespace ddp::launch {

// At most the first `max_bytes` of a regular file; nothing if it cannot be opened, read, or is
// something else (a pipe would block).
std::optional<std::string> read_text(const std::string& path, std::size_t max_bytes);

}  // namespace ddp::launch
