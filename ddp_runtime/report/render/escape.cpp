// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/render/escape.h"

#include <array>
#include <cstdint>
#include <utility>

namespace ddp::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Character {
  std::uint32_t code = 0;
  std::size_t length = 1;
  bool valid = false;
};

// The first character of `text`, which must not be empty. Overlong forms and surrogates are
// invalid.
Character decode(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  std::uint32_t code = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[length] || code > 0x10FFFF || surrogate) return {};
  return {code, length, true};
}

bool allowed_in_xml(std::uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
  return code != 0xFFFE && code != 0xFFFF;
}

// Characters that start escape sequences or change the direction of the following text.
bool steers_terminal(std::uint32_t code) {
  if (code < 0x20) return code != '\n' && code != '\t';
  return (code >= 0x7F && code < 0xA0) || code == 0x061C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Whether Markdown may interpret the character: some always, some at the start of a line, and an
// underscore unless it is inside a word.
bool is_markup(char c, char before, char after, bool first) {
  constexpr std::string_view kAlways = "\\`*[]<|~$&";
  constexpr std::string_view kAtTheStart = "#>-+=";
  if (c == '_') return !is_word(before) || !is_word(after);
  return kAlways.find(c) != std::string_view::npos ||
         (first && kAtTheStart.find(c) != std::string_view::npos);
}

template <class Escape>
std::string escape_each(std::string_view text, const Escape& escape) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character character = decode(text);
    const std::string_view bytes = text.substr(0, character.length);
    if (!character.valid || !allowed_in_xml(character.code)) {
      result += kReplacement;
    } else {
      escape(result, character.code, bytes);
    }
    text.remove_prefix(character.length);
  }
  return result;
}

}  // namespace

std::string html_escape(std::string_view text) {
  return escape_each(text, [](std::string& out, std::uint32_t code, std::string_view bytes) {
    switch (code) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += bytes;
    }
  });
}

std::string markdown_escape(std::string_view text) {
  char before = ' ';
  return escape_each(text, [&](std::string& out, std::uint32_t code, std::string_view bytes) {
    const char after = bytes.data() + 1 < text.data() + text.size() ? bytes.data()[1] : ' ';
    const char character = code < 0x80 ? static_cast<char>(code) : 'x';
    if (is_markup(character, before, after, out.empty())) out += '\\';
    if (character == '\n' || character == '\r' || character == '\t') {
      out += ' ';
    } else {
      out += bytes;
    }
    before = character;
  });
}

std::string terminal_text(std::string_view text) {
  return escape_each(text, [](std::string& out, std::uint32_t code, std::string_view bytes) {
    out += steers_terminal(code) ? kReplacement : bytes;
  });
}

}  // namespace ddp::report
