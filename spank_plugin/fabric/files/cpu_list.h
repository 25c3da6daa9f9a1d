// SPDX-License-Identifier: Apache-2.0
// Sets of CPUs in the kernel's format: "0-15,64-79".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fabric {

// Returns the CPUs ascending, without duplicates; empty if the text is not a CPU list or names a
// CPU above 65,535.
std::vector<std::uint32_t> parse_cpu_list(std::string_view text);

// `cpus` must be ascending.
std::string format_cpu_list(std::span<const std::uint32_t> cpus);

}  // namespace ddp::fabric
