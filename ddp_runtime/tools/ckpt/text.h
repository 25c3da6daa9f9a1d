// SPDX-License-Identifier: Apache-2.0
// Formats sizes, times, tables and JSON for ddp-ckpt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt::tool {

// "1.4 GiB"
std::string size_text(std::uint64_t bytes);

// "2024-05-17 08:30:00" UTC
std::string time_text(std::int64_t unix_seconds);

// Columns are two spaces apart and as wide as their widest cell, up to a limit that very long names
// may exceed. The last column is not padded.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

// "step-00000200: 45 %, 1.2 GiB of 2.7 GiB, 512.0 MiB/s, 3 s left". Omits the rate and the time
// left while the elapsed time, `seconds`, is too short for an estimate.
std::string progress_text(const std::string& what, std::uint64_t done, std::uint64_t total,
                          double seconds);

// Indented, and ASCII only even if the texts in it are not valid UTF-8: they come from untrusted
// files.
std::string json_text(const nlohmann::json& json);

// Shows progress on standard error if it is a terminal; otherwise does nothing.
Progress terminal_progress(const std::string& what);

}  // namespace ddp::ckpt::tool
