// SPDX-License-Identifier: Apache-2.0
// Escaping of untrusted strings for HTML, Markdown and terminals.
#pragma once

#include <string>
#include <string_view>

namespace ddp::report {

// For text and quoted attributes of HTML that is also XML. Characters that XML does not allow, and
// bytes that are not UTF-8, become U+FFFD.
std::string html_escape(std::string_view text);

// For a cell of a Markdown table or a paragraph: one line, no markup.
std::string markdown_escape(std::string_view text);

// For a terminal: characters that move the cursor, change colors or reverse the text direction
// become U+FFFD. Line ends and tabs are kept.
std::string terminal_text(std::string_view text);

}  // namespace ddp::report
