// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/untrusted_json.h"

#include <algorithm>

#include "base/text.h"

namespace ddp::check {
namespace {

// ddp-check's own messages have 4 levels: a hello, its rails, one rail, its values.
constexpr int kMaxDepth = 8;

// Called before parsing, so that the parser never builds a thousand levels.
bool too_deep(std::string_view text) noexcept {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

bool is_printable(const std::string& text) {
  return text.size() <= kMaxUntrustedText &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

nlohmann::json made_printable(nlohmann::json value);

nlohmann::json with_printable_keys(nlohmann::json&& object) {
  nlohmann::json clean = nlohmann::json::object();
  for (auto& [key, value] : object.items()) {
    clean[sanitize_lines(key, kMaxUntrustedText)] = made_printable(std::move(value));
  }
  return clean;
}

nlohmann::json made_printable(nlohmann::json value) {
  if (value.is_object()) return with_printable_keys(std::move(value));
  if (value.is_array()) {
    for (auto& element : value) element = made_printable(std::move(element));
  } else if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    if (!is_printable(text)) text = sanitize_lines(text, kMaxUntrustedText);
  }
  return value;
}

}  // namespace

nlohmann::json parse_untrusted(std::string_view text) {
  if (too_deep(text)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return made_printable(nlohmann::json::parse(text, nullptr, false));
}

}  // namespace ddp::check
