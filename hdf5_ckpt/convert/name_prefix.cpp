// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/name_prefix.h"

#include <algorithm>

namespace ddp::ckpt {
namespace {

bool ends_in_a_component(const std::string& prefix) {
  if (prefix.empty()) return false;
  const char last = prefix.back();
  return (last >= 'a' && last <= 'z') || (last >= 'A' && last <= 'Z') ||
         (last >= '0' && last <= '9');
}

}  // namespace

std::string prefix_in(const std::string& prefix, std::span<const std::string_view> names) {
  if (!ends_in_a_component(prefix)) return prefix;
  for (const char separator : {'/', '.'}) {
    std::string whole = prefix + separator;
    if (std::any_of(names.begin(), names.end(),
                    [&](std::string_view name) { return name.starts_with(whole); }))
      return whole;
  }
  return prefix;
}

std::string prefix_to_add(const std::string& prefix) {
  return ends_in_a_component(prefix) ? prefix + "/" : prefix;
}

}  // namespace ddp::ckpt
