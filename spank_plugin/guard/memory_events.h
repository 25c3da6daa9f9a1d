// SPDX-License-Identifier: Apache-2.0
// How many processes the kernel has killed for lack of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::guard {

struct OutOfMemoryKills {
  std::optional<std::uint64_t> in_cgroup;  // of this process, with those below it
  std::optional<std::uint64_t> on_node;
};

// Reads them below `root`, which is "/". A file that is missing or strange counts as unknown.
OutOfMemoryKills read_out_of_memory_kills(const std::string& root);

// Returns the file that counts them, below `root`, according to the text of /proc/self/cgroup:
// version 2, or the memory controller of version 1. Empty if there is none.
std::string memory_events_file(const std::string& root, std::string_view cgroups);

// Returns the number in the line "KEY NUMBER".
std::optional<std::uint64_t> counter_of(std::string_view text, std::string_view key) noexcept;

}  // namespace ddp::guard
