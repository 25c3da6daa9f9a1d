// SPDX-License-Identifier: Apache-2.0
// Checks names byte by byte: no locale, no regular expressions.

#include "hdf5_ckpt/core/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "hdf5_ckpt/core/manifest.h"

namespace ddp::ckpt {
namespace {

constexpr std::size_t kMaxFileNameBytes = 255;

// Returns the length of the UTF-8 sequence at the start of `text`, 0 if it is invalid (RFC 3629: no
// overlong forms, no surrogates, nothing above U+10FFFF).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead < 0xF0) {
    const bool bad = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) >= 0xA0);
    return !bad && follows(1) && follows(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead < 0xF5) {
    const bool bad = (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) >= 0x90);
    return !bad && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// True for C0, DEL and C1, which could control a terminal.
bool is_control(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7F;
  return lead == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;
}

bool is_file_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

std::string label_problem(std::string_view text) {
  if (text.size() > kMaxNameBytes) return fmt::format("is longer than {} bytes", kMaxNameBytes);
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return "is not UTF-8";
    if (is_control(text.substr(0, length))) return "contains a control character";
    text.remove_prefix(length);
  }
  return "";
}

std::string array_name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (std::string problem = label_problem(name); !problem.empty()) return problem;
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    const std::string_view component = name.substr(start, end - start);
    if (component.empty()) return "starts or ends with '/' or contains '//'";
    if (component == "." || component == "..") return "contains a component '.' or '..'";
    start = end + 1;
  }
  return "";
}

std::string file_name_problem(std::string_view name) {
  if (name.size() > kMaxFileNameBytes)
    return fmt::format("is longer than {} bytes", kMaxFileNameBytes);
  if (!name.ends_with(".h5") || name.starts_with('.'))
    return "must end in '.h5' and not start with '.'";
  if (!std::all_of(name.begin(), name.end(), is_file_name_character))
    return "may contain only letters, digits, '.', '_' and '-'";
  return "";
}

std::string name_set_problem(std::span<const std::string_view> sorted) {
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return fmt::format("the array '{}' appears twice", *twice);
  const std::unordered_set<std::string_view> names(sorted.begin(), sorted.end());
  for (const std::string_view name : sorted) {
    for (auto slash = name.find('/'); slash != std::string_view::npos;
         slash = name.find('/', slash + 1)) {
      if (names.contains(name.substr(0, slash)))
        return fmt::format("'{}' is an array and also the group of '{}'", name.substr(0, slash),
                           name);
    }
  }
  return "";
}

}  // namespace ddp::ckpt
