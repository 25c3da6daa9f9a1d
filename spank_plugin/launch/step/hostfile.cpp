// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/hostfile.h"

#include <algorithm>

#include "base/hostlist.h"

namespace ddp::launch {

std::optional<std::string> first_host_of_hostfile(std::string_view text) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r,"), line.size()));
    line = line.substr(0, line.find_first_of("#* \t\r"));
    if (line.empty()) continue;
    return expand_hostlist(line).front();
  }
  return std::nullopt;
}

}  // namespace ddp::launch
