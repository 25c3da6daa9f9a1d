// SPDX-License-Identifier: Apache-2.0
#include "base/visible_devices.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace ddp {
namespace {

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

// A number, or a number with parts ("0.1" in ZE_AFFINITY_MASK), or a UUID.
bool is_device(std::string_view text) noexcept {
  if (text.empty()) return false;
  return is_digit(text.front()) || text.starts_with("GPU-") || text.starts_with("MIG-");
}

// "01" and "1" are the same device.
std::string_view without_leading_zeros(std::string_view text) noexcept {
  if (!std::all_of(text.begin(), text.end(), is_digit)) return text;
  return text.substr(std::min(text.find_first_not_of('0'), text.size() - 1));
}

}  // namespace

std::vector<std::string_view> visible_devices(std::string_view list) {
  std::vector<std::string_view> devices;
  std::set<std::string_view> seen;
  for (const auto piece : split(list, ',')) {
    const auto device = trimmed(piece);
    if (!is_device(device)) break;
    if (!seen.insert(without_leading_zeros(device)).second) return {};
    devices.push_back(device);
  }
  return devices;
}

}  // namespace ddp
