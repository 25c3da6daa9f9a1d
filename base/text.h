// SPDX-License-Identifier: Apache-2.0
// The small text work that all rooms share: splitting, numbers, and showing untrusted text.
// Bounded, without locales and streams, since it also runs inside srun and slurmstepd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

// Without spaces, tabs and line ends at both sides.
std::string_view trimmed(std::string_view text) noexcept;

// The pieces between separators, at most `most` of them, empty ones included; "" gives one empty
// piece.
std::vector<std::string_view> split(std::string_view text, char separator,
                                    std::size_t most = std::string_view::npos);

// The words between spaces and tabs, at most `most`.
std::vector<std::string_view> words_of(std::string_view text,
                                       std::size_t most = std::string_view::npos);

std::string join(std::span<const std::string> parts, std::string_view separator);

// The value of a run of digits and nothing else, if it is at most `max`, or fits. Leading zeros are
// allowed; signs and spaces are not.
std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t max) noexcept;
std::optional<std::uint32_t> parse_decimal(std::string_view text) noexcept;
std::optional<std::uint32_t> parse_hexadecimal(std::string_view text) noexcept;

// ASCII only. Not std::isalnum and std::isprint: those depend on the locale, and have undefined
// behavior for negative chars.
constexpr bool is_alphanumeric(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_printable(char c) noexcept {
  return c >= ' ' && c <= '~';
}

// True for a part of a host name, of an address, or of a name with a zone: letters, digits and
// "._-:%", at most 255 of them, at least one.
bool is_host_or_address(std::string_view text) noexcept;

// Untrusted text for a log, a report or a terminal: each character that is not printable ASCII
// becomes '?'.
std::string sanitize(std::string_view text);
// The same, at most `limit` characters of it, followed by "..." if there are more.
std::string sanitize_beginning(std::string_view text, std::size_t limit);
// The same of the first line, at most `limit` characters of it.
std::string sanitize_first_line(std::string_view text, std::size_t limit);
// The same of all lines as one, at most `limit` characters of it: a line break becomes a space.
std::string sanitize_lines(std::string_view text, std::size_t limit);

// Text of unknown origin in single quotes for a message: at most 60 characters of it, sanitized.
std::string quote_for_display(std::string_view text);

// The text as one word of a POSIX shell: unchanged if it needs no quotes.
std::string shell_word(std::string_view text);

// The beginning of a UTF-8 text, at most so many bytes, without a half character at its end.
std::string_view beginning_of(std::string_view text, std::size_t bytes) noexcept;

}  // namespace ddp
