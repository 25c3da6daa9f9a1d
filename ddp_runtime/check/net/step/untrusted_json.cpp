// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/untrusted_json.h"

#include <algorithm>

#include "base/json/bounded_json.h"
#include "base/text.h"

namespace ddp::check {
namespace {

// ddp-check's own messages have 4 levels: a hello, its rails, one rail, its values.
constexpr int kMaxDepth = 8;

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
  return made_printable(parse_bounded_json_or_null(text, {.depth = kMaxDepth}));
}

}  // namespace ddp::check
