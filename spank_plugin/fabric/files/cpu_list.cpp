// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/files/cpu_list.h"

#include <algorithm>

#include "base/text.h"

namespace ddp::fabric {

std::vector<std::uint32_t> parse_cpu_list(std::string_view text) {
  constexpr std::uint32_t kMaxCpus = 65'536;
  std::vector<bool> members;
  for (const auto range : split(trimmed(text), ',', kMaxCpus)) {
    const auto dash = std::min(range.find('-'), range.size());
    const auto first = parse_decimal(range.substr(0, dash));
    const auto last = dash == range.size() ? first : parse_decimal(range.substr(dash + 1));
    if (!first || !last || *first > *last || *last >= kMaxCpus) return {};
    if (members.size() <= *last) members.resize(*last + 1);
    std::fill(members.begin() + *first, members.begin() + *last + 1, true);
  }
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu < members.size(); ++cpu) {
    if (members[cpu]) cpus.push_back(cpu);
  }
  return cpus;
}

std::string format_cpu_list(std::span<const std::uint32_t> cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text.append(text.empty() ? "" : ",").append(std::to_string(cpus[i]));
    if (end - i > 1) text.append("-").append(std::to_string(cpus[end - 1]));
    i = end;
  }
  return text;
}

}  // namespace ddp::fabric
