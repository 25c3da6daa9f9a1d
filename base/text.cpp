// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <algorithm>
#include <charconv>

namespace ddp {
namespace {

bool is_one_of(char c, std::string_view set) noexcept {
  return set.find(c) != std::string_view::npos;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text, int base) noexcept {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator, std::size_t most) {
  std::vector<std::string_view> pieces;
  while (pieces.size() < most) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return pieces;
}

std::vector<std::string_view> words_of(std::string_view text, std::size_t most) {
  constexpr std::string_view kSpace = " \t\r";
  std::vector<std::string_view> words;
  while (words.size() < most) {
    const std::size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos) break;
    text.remove_prefix(first);
    const std::size_t end = std::min(text.find_first_of(kSpace), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t max) noexcept {
  const auto value = parse_number<std::uint64_t>(text, 10);
  return value && *value <= max ? value : std::nullopt;
}

std::optional<std::uint32_t> parse_decimal(std::string_view text) noexcept {
  return parse_number<std::uint32_t>(text, 10);
}

std::optional<std::uint32_t> parse_hexadecimal(std::string_view text) noexcept {
  return parse_number<std::uint32_t>(text, 16);
}

bool is_host_or_address(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 255 && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || is_one_of(c, "._-:%");
  });
}

std::string sanitize(std::string_view text) {
  std::string shown(text);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return !is_printable(c); }, '?');
  return shown;
}

std::string sanitize_beginning(std::string_view text, std::size_t limit) {
  return sanitize(text.substr(0, limit)) + (text.size() > limit ? "..." : "");
}

std::string sanitize_first_line(std::string_view text, std::size_t limit) {
  return sanitize(text.substr(0, std::min(text.find('\n'), limit)));
}

std::string sanitize_lines(std::string_view text, std::size_t limit) {
  std::string line(text.substr(0, limit));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return sanitize(line);
}

std::string quote_for_display(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown = "'";
  shown.append(sanitize_beginning(text, kShown)).append("'");
  return shown;
}

std::string shell_word(std::string_view text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || is_one_of(c, "_./:@%+,=-");
  });
  if (plain) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string_view beginning_of(std::string_view text, std::size_t bytes) noexcept {
  if (text.size() <= bytes) return text;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
  };
  // A UTF-8 character has at most three continuation bytes; text with more is not UTF-8.
  std::size_t end = bytes;
  for (int i = 0; i < 3 && end > 0 && continues(end); ++i) --end;
  return text.substr(0, continues(end) ? bytes : end);
}

}  // namespace ddp
