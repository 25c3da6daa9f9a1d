// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/node_name.h"

#include <algorithm>

namespace ddp::check {
namespace {

constexpr std::size_t kMaxNameCharacters = 255;

bool is_in_names(char c) noexcept {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool means_all(std::string_view text) noexcept {
  constexpr std::string_view kAll = "all";
  return std::equal(text.begin(), text.end(), kAll.begin(), kAll.end(),
                    [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

bool is_node_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= kMaxNameCharacters && text.front() != '-' &&
         !means_all(text) && std::all_of(text.begin(), text.end(), is_in_names);
}

}  // namespace ddp::check
