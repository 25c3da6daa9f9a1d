// SPDX-License-Identifier: Apache-2.0
// JSON that another process sent: no deeper than our own messages, and free of anything that a
// terminal, a report or a list of names could take for more than text.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace ddp::check {

// Every text in the result, keys included, is one line of printable ASCII of at most
// kMaxUntrustedText characters. Returns a discarded value (see is_discarded) if the text is not
// JSON or is deeper than our messages are.
inline constexpr std::size_t kMaxUntrustedText = 2000;
nlohmann::json parse_untrusted(std::string_view text);

}  // namespace ddp::check
