// SPDX-License-Identifier: Apache-2.0
// The formats: cgroup-v2.rst and cgroup-v1/memory.rst of the kernel's documentation.
#include "spank_plugin/guard/memory_events.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "base/text_file.h"

namespace ddp::guard {
namespace {

bool has_memory(std::string_view controllers) {
  for (const auto name : split(controllers, ',')) {
    if (name == "memory") return true;
  }
  return false;
}

}  // namespace

std::string memory_events_file(const std::string& root, std::string_view cgroups) {
  constexpr std::size_t kMaxHierarchies = 64;
  const std::string top = root + "sys/fs/cgroup";
  std::string version_2;
  for (const auto line : split(cgroups, '\n', kMaxHierarchies)) {
    // "ID:CONTROLLERS:PATH"; the path may contain colons.
    const auto first = line.find(':');
    const auto second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const auto path = line.substr(second + 1);
    if (has_memory(controllers)) {
      return std::string(top).append("/memory").append(path).append("/memory.oom_control");
    }
    if (controllers.empty()) version_2 = std::string(top).append(path).append("/memory.events");
  }
  return version_2;
}

std::optional<std::uint64_t> counter_of(std::string_view text, std::string_view key) noexcept {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.size() <= key.size() || !line.starts_with(key) || line[key.size()] != ' ') continue;
    return parse_decimal(trimmed(line.substr(key.size())),
                         std::numeric_limits<std::uint64_t>::max());
  }
  return std::nullopt;
}

OutOfMemoryKills read_out_of_memory_kills(const std::string& root) {
  const std::string events = memory_events_file(root, read_kernel_file(root + "proc/self/cgroup"));
  return {counter_of(read_kernel_file(events), "oom_kill"),
          counter_of(read_kernel_file(root + "proc/vmstat"), "oom_kill")};
}

}  // namespace ddp::guard
