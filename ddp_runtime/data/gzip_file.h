// SPDX-License-Identifier: Apache-2.0
// Reads a whole file, gzip-compressed or not.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

namespace ddp::data {

// Throws UsageError if the file cannot be opened, RuntimeError if it is damaged or its contents are
// larger than `most_bytes`.
std::vector<unsigned char> read_maybe_gzipped(const std::filesystem::path& file,
                                              std::size_t most_bytes);

}  // namespace ddp::data
