// Sets of CPUs as the kernel writes them: "0-15,64-79".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fabric {

// Ascending, each once. Empty for a text that is no such list, or names a CPU above 65,535.
std::vector<std::uint32_t> parse_cpu_list(std::string_view text);

// Of ascending numbers.
std::string format_cpu_list(std::span<const std::uint32_t> cpus);

}  // namespace ddp::fabric
