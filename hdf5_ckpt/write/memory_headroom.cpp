// SPDX-License-Identifier: Apache-2.0
// Reads /proc/meminfo and the files of control groups, any of which may be missing.

#include "hdf5_ckpt/write/memory_headroom.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

// Version 1 represents "no limit" as a number near 2^63, rounded to pages.
constexpr std::uint64_t kNoLimit = 1ULL << 62;

std::optional<std::uint64_t> leading_number(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), value);
  static_cast<void>(end);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return leading_number(line);  // "max" is not a number
}

// Returns the number after `key` in a file of lines "key number" or "key: number kB".
std::optional<std::uint64_t> number_of(const fs::path& file, std::string_view key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const std::string_view text = line;
    if (text.starts_with(key) && text.size() > key.size() &&
        (text[key.size()] == ' ' || text[key.size()] == ':'))
      return leading_number(text.substr(key.size() + 1));
  }
  return std::nullopt;
}

// The file names of one cgroup version.
struct Names {
  std::vector<std::string_view> limits;
  std::string_view usage;
  std::array<std::string_view, 2> cached;
};

const Names kVersion1 = {{"memory.limit_in_bytes"},
                         "memory.usage_in_bytes",
                         {"total_inactive_file", "total_active_file"}};
const Names kVersion2 = {
    {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}};

// Returns the memory that is left below the limit of one group.
std::optional<std::uint64_t> left_in(const fs::path& group, const Names& names) {
  std::uint64_t limit = kNoLimit;
  for (const std::string_view name : names.limits)
    limit = std::min(limit, number_in(group / name).value_or(kNoLimit));
  const auto used = number_in(group / names.usage);
  if (limit >= kNoLimit || !used) return std::nullopt;
  std::uint64_t cached = 0;
  for (const std::string_view key : names.cached)
    cached += number_of(group / "memory.stat", key).value_or(0);
  const std::uint64_t needed = *used - std::min(*used, cached);
  return limit - std::min(limit, needed);
}

void take_least(std::optional<std::uint64_t>& least, std::optional<std::uint64_t> other) {
  if (other && (!least || *other < *least)) least = other;
}

// Returns the minimum over the group `path` below `mount` and its parents. In a container the path
// may be the host's, and the container's own group is at the mount.
std::optional<std::uint64_t> left_around(const fs::path& mount, const fs::path& path,
                                         const Names& names) {
  std::optional<std::uint64_t> least;
  for (fs::path group = path.relative_path(); !group.empty(); group = group.parent_path())
    take_least(least, left_in(mount / group, names));
  take_least(least, left_in(mount, names));
  return least;
}

}  // namespace

std::optional<std::uint64_t> memory_headroom(const fs::path& root) {
  std::optional<std::uint64_t> least;
  if (const auto kib = number_of(root / "proc/meminfo", "MemAvailable")) least = *kib * 1024;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  // Lines are "4:memory:/path" in version 1 and "0::/path" in version 2; both may occur.
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const fs::path path = line.substr(second + 1);
    if (kinds == ",,") {
      take_least(least, left_around(mounts, path, kVersion2));
      take_least(least, left_around(mounts / "unified", path, kVersion2));
    } else if (kinds.find(",memory,") != std::string::npos) {
      take_least(least, left_around(mounts / "memory", path, kVersion1));
    }
  }
  return least;
}

}  // namespace ddp::ckpt
