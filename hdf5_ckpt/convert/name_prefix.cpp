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

std::vector<ShortName> without_prefix(const std::string& prefix,
                                      std::span<const std::string_view> names) {
  const std::string whole = prefix_in(prefix, names);
  std::vector<ShortName> found;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i].starts_with(whole) && names[i].size() > whole.size())
      found.push_back({std::string(names[i].substr(whole.size())), i});
  return found;
}

std::string prefix_to_add(const std::string& prefix) {
  return ends_in_a_component(prefix) ? prefix + "/" : prefix;
}

}  // namespace ddp::ckpt
