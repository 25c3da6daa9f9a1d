// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/files/text.h"

#include <algorithm>

#include "base/text.h"

namespace ddp::fabric {
namespace {

bool is_word(char c) noexcept {
  return is_alphanumeric(c) || c == '_';
}

}  // namespace

bool is_variable_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 128 && !(text.front() >= '0' && text.front() <= '9') &&
         std::all_of(text.begin(), text.end(), is_word);
}

bool is_plain_value(std::string_view text) noexcept {
  return text.size() <= 1024 && std::all_of(text.begin(), text.end(), is_printable);
}

bool is_interface_name(std::string_view text) noexcept {
  return text.size() <= 15 && is_device_name(text);
}

bool is_device_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 63 && text.front() != '^' && text.front() != '=' &&
         text.find_first_of(",:/ ") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), is_printable);
}

}  // namespace ddp::fabric
