// SPDX-License-Identifier: Apache-2.0
// Memory reserved as huge pages: unavailable for anything else, and wasted if no process uses it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/finding.h"

namespace ddp::check {

struct HugepageFacts {
  std::optional<std::uint64_t> memory_bytes;  // of the node
  std::optional<std::uint64_t> total;         // pages of the default size
  std::optional<std::uint64_t> free;
  std::optional<std::uint64_t> page_bytes;
};

// From the text of /proc/meminfo.
HugepageFacts parse_hugepages(std::string_view text);

// UNKNOWN if the text contains none of this; no finding on a kernel without huge pages.
std::vector<Finding> evaluate_hugepages(const HugepageFacts& facts);

}  // namespace ddp::check
