// SPDX-License-Identifier: Apache-2.0
// Parses JSON from another process: limits its depth and makes its texts safe for terminals,
// reports and lists of names.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace ddp::check {

// Every text in the result, keys included, is one line of printable ASCII of at most
// kMaxUntrustedText characters. Returns null if the text is not JSON or is nested more deeply than
// ddp-check's own messages.
inline constexpr std::size_t kMaxUntrustedText = 2000;
nlohmann::json parse_untrusted(std::string_view text);

}  // namespace ddp::check
