// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/files/assignments.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/fabric/files/text.h"

namespace ddp::fabric {

std::vector<Assignment> parse_assignments(std::string_view text, std::string_view file) {
  constexpr std::size_t kMaxLines = 1024;
  std::vector<Assignment> assignments;
  for (const auto whole : split(text, '\n', kMaxLines)) {
    const auto line = trimmed(whole.substr(0, whole.find('#')));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const auto name = trimmed(line.substr(0, equals));
    const auto value = trimmed(line.substr(equals + 1));
    if (!is_variable_name(name) || !is_plain_value(value)) continue;
    assignments.push_back({std::string(name), std::string(value), std::string(file)});
  }
  return assignments;
}

const Assignment* find_assignment(std::span<const Assignment> assignments,
                                  std::string_view name) noexcept {
  const auto found = std::find_if(assignments.begin(), assignments.end(),
                                  [name](const auto& entry) { return entry.name == name; });
  return found == assignments.end() ? nullptr : &*found;
}

}  // namespace ddp::fabric
