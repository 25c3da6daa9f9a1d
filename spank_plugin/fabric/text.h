// The small text work that this room's parsers share: bounded, without locales and streams, since
// it also runs inside srun and slurmstepd.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fabric {

// Without spaces, tabs and line ends at both sides.
std::string_view trimmed(std::string_view text) noexcept;

// The pieces between separators, at most `most` of them, empty ones included; "" gives one.
std::vector<std::string_view> split(std::string_view text, char separator, std::size_t most);

// The words between spaces and tabs, at most `most`.
std::vector<std::string_view> words_of(std::string_view text, std::size_t most);

// All of the text as a number; nothing if it is not one, or does not fit.
std::optional<std::uint32_t> parse_decimal(std::string_view text) noexcept;
std::optional<std::uint32_t> parse_hexadecimal(std::string_view text) noexcept;

std::string join(std::span<const std::string> parts, std::string_view separator);

// Text of unknown origin for a message: at most 60 characters, printable ASCII only, in quotes.
std::string in_quotes(std::string_view text);

// A letter or _, then letters, digits and _; at most 128.
bool is_variable_name(std::string_view text) noexcept;

// Something that can be set in an environment and shown on a line: printable ASCII, at most 1024.
bool is_plain_value(std::string_view text) noexcept;

// A name as Linux gives to interfaces (at most 15 characters) and RDMA devices (63), which no
// library takes for a list or a pattern: printable, without ",:/ ", not beginning with ^ or =.
bool is_interface_name(std::string_view text) noexcept;
bool is_device_name(std::string_view text) noexcept;

}  // namespace ddp::fabric
