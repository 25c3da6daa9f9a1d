// SPDX-License-Identifier: Apache-2.0
// Checks the available memory, before the kernel's OOM killer strikes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

struct MemoryFacts {
  std::optional<std::uint64_t> total_bytes;
  std::optional<std::uint64_t> available_bytes;
};

// Parses the text of /proc/meminfo.
MemoryFacts parse_meminfo(std::string_view text);

// Memory that a running job may use is never more than a WARNING.
Finding evaluate_memory(const MemoryFacts& facts, bool a_job_runs = false);

}  // namespace ddp::check
