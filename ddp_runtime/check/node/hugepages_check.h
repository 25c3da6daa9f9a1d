// SPDX-License-Identifier: Apache-2.0
// Checks memory reserved as huge pages, which is wasted if no process uses it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

struct HugepageFacts {
  std::optional<std::uint64_t> memory_bytes;  // memory of the node
  std::optional<std::uint64_t> total;         // number of pages of the default size
  std::optional<std::uint64_t> free;
  std::optional<std::uint64_t> page_bytes;
};

// Parses the text of /proc/meminfo.
HugepageFacts parse_hugepages(std::string_view text);

// UNKNOWN if /proc/meminfo could not be parsed. No finding on a kernel without huge pages.
std::vector<Finding> evaluate_hugepages(const HugepageFacts& facts);

}  // namespace ddp::check
