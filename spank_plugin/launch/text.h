#pragma once
// The small text work that all the parsers of this room share: bounded decimals, splitting, and
// showing untrusted text in a message.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

// The value of a run of decimal digits and nothing else, if it is at most `max`. Leading zeros are
// allowed; signs and spaces are not.
std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t max) noexcept;

// The pieces between separators, empty ones included; "" gives one empty piece.
std::vector<std::string_view> split(std::string_view text, char separator);

// Text of unknown origin in single quotes for a message: at most 60 characters of it, with
// everything that is not printable ASCII shown as '?'.
std::string in_quotes(std::string_view text);

// The text as one word of a POSIX shell: unchanged if it needs no quotes.
std::string shell_word(std::string_view text);

// True for what may stand in a host name, an address, or a name with a zone: letters, digits and
// "._-:%", at most 255 of them, at least one.
bool is_host_or_address(std::string_view text) noexcept;

// FNV-1a: the same on every host, unlike std::hash.
std::uint64_t hash_of(std::string_view text) noexcept;

// Untrusted text for a log or a terminal: everything that is not printable ASCII becomes '?', and
// of what is longer than `limit` the end is cut off.
std::string printable(std::string_view text, std::size_t limit);

// "host:port", with brackets around an IPv6 address.
std::string endpoint(std::string_view host, std::string_view port);

}  // namespace ddp::launch
