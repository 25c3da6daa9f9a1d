// SPDX-License-Identifier: Apache-2.0
// Text functions that all libraries share: splitting, parsing numbers, and displaying untrusted
// text. They are bounded and avoid locales and streams, because they also run inside srun and
// slurmstepd.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

// Removes spaces, tabs and line ends on both sides.
std::string_view trimmed(std::string_view text) noexcept;

// Returns the first `most` pieces between separators, including empty ones. An empty text has one
// empty piece.
std::vector<std::string_view> split(std::string_view text, char separator,
                                    std::size_t most = std::string_view::npos);

// Returns the first `most` words, separated by spaces and tabs.
std::vector<std::string_view> words_of(std::string_view text,
                                       std::size_t most = std::string_view::npos);

std::string join(std::span<const std::string> parts, std::string_view separator);

// "1 node", "2 nodes"; "2 batches" with the ending "es".
template <std::integral Number>
std::string counted(Number number, std::string_view thing, std::string_view ending = "s") {
  std::string text = std::to_string(number) + " ";
  text += thing;
  return number == 1 ? text : text.append(ending);
}

// Parses a text that consists of digits only. Returns nullopt if the value exceeds `max` or the
// return type. Leading zeros are allowed; signs and spaces are not.
std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t max) noexcept;
std::optional<std::uint32_t> parse_decimal(std::string_view text) noexcept;
std::optional<std::uint32_t> parse_hexadecimal(std::string_view text) noexcept;

// ASCII only. std::isalnum and std::isprint depend on the locale and have undefined behavior for
// negative chars.
constexpr bool is_alphanumeric(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_printable(char c) noexcept {
  return c >= ' ' && c <= '~';
}

// Whether the text can be a host name or an address, with or without a zone: 1 to 255 characters,
// all of them letters, digits or "._-:%".
bool is_host_or_address(std::string_view text) noexcept;

// Makes untrusted text safe for a log, a report or a terminal: replaces each character that is not
// printable ASCII with '?'.
std::string sanitize(std::string_view text);
// Sanitizes the first `limit` characters and appends "..." if there are more.
std::string sanitize_beginning(std::string_view text, std::size_t limit);
// Sanitizes the first line, or its first `limit` characters.
std::string sanitize_first_line(std::string_view text, std::size_t limit);
// Sanitizes the first `limit` characters and joins their lines with spaces.
std::string sanitize_lines(std::string_view text, std::size_t limit);

// Untrusted text in single quotes for a message: sanitized, and cut after 60 characters.
std::string quote_for_display(std::string_view text);

// The text as one word of a POSIX shell, quoted if necessary.
std::string shell_word(std::string_view text);

// Returns at most the first `bytes` bytes of a UTF-8 text without splitting a character.
std::string_view beginning_of(std::string_view text, std::size_t bytes) noexcept;

}  // namespace ddp
