// SPDX-License-Identifier: Apache-2.0
// Runs libhdf5 on files of unknown origin in a child process with limited memory and time, because
// it has crashed, hung and overrun its memory on damaged files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

namespace ddp::ckpt {

struct ChildLimits {
  std::uint64_t memory_bytes = 1ULL << 30;
  std::uint64_t cpu_seconds = 60;
  std::uint64_t written_bytes = 0;  // the end of what it may write into a file
};

// Returns what `work` returns in the child. Throws what it throws there, as DamagedError or
// UnsupportedError, or as Error if it cannot write; DamagedError if the child crashes. `file`: for
// messages. Call it only while the process has a single thread.
nlohmann::json in_child(const std::filesystem::path& file, const ChildLimits& limits,
                        const std::function<nlohmann::json()>& work);

}  // namespace ddp::ckpt
